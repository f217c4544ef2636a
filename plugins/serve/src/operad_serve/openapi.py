"""A registry served as an HTTP API with an OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from operad import Identity, OperationRegistry
from operad_serve.api.application import OpenAPIApplication
from operad_serve.api.options import OpenAPIServerConfig

if TYPE_CHECKING:
    from operad_auth import Credentials

__all__ = ["OpenAPIApplication", "OpenAPIServerConfig", "to_openapi"]


def to_openapi(
    registry: OperationRegistry,
    *,
    authenticate: Callable[[Credentials], Awaitable[Identity | None] | Identity | None] | None = None,
    explorer: bool = True,
    title: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    timeout: float | None = 30.0,
    max_body: int = 4 * 1024 * 1024,
    mask_errors: bool = True,
    **options: Any,
) -> OpenAPIApplication:
    """The operations of ``registry`` as an ASGI application.

    ``POST /operations/{id}`` calls an operation, ``GET`` one whose input is flat and that changes nothing;
    ``/openapi.json`` describes them (OpenAPI 3.1), ``/health`` says whether calls are taken, ``/`` is the
    explorer.

    Args:
        registry: whose operations are served, as they are at the time of each request.
        authenticate: `operad.auth.Credentials` -> who calls, or ``None``. Without it everybody is nobody, and
            operations that require anything are refused.
        explorer: whether ``/`` shows the explorer.
        title: of the document and the explorer.
        allowed_hosts: names that ``Host`` may have, ``*`` for any. On a loopback address only its own names are
            allowed unless others are listed: a proxy in front needs that.
        allowed_origins: origins whose pages may call from a browser (CORS), ``*`` for any.
        timeout: seconds for a call that asks for no other time in ``Operad-Timeout``; ``None``: no bound.
        max_body: the largest request body, in bytes.
        mask_errors: replace messages of exceptions that no operation declares by a reference into the log.
        options: further fields of `OpenAPIServerConfig`.
    """
    return OpenAPIApplication(
        registry,
        OpenAPIServerConfig(
            authenticate=authenticate,
            explorer=explorer,
            title=title,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            timeout=timeout,
            max_body=max_body,
            mask_errors=mask_errors,
            **options,
        ),
    )
