"""The function `to_openapi`, which makes the HTTP API of a registry."""

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
    anonymous: bool = False,
    explorer: bool = True,
    title: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    timeout: float | None = 30.0,
    max_body: int = 4 * 1024 * 1024,
    mask_errors: bool = True,
    **options: Any,
) -> OpenAPIApplication:
    """Return an ASGI application that serves the operations of a registry.

    ``POST /operations/{id}`` calls an operation. ``GET`` calls a query or subscription with its input in the query
    string, if all required fields are scalars or lists of scalars. ``/openapi.json`` describes the operations
    (OpenAPI 3.1), ``/health`` reports whether calls are accepted, and ``/`` is the explorer.

    Args:
        registry: the registry whose operations are served. Changes take effect immediately.
        authenticate: a function that takes `operad_auth.Credentials` and returns the caller, or None if it is
            unknown. With it, requests without credentials are refused. Without it, every caller is anonymous and
            may only call operations without access requirements.
        anonymous: whether to accept requests without credentials although there is an authenticator.
        explorer: whether ``/`` shows the explorer.
        title: the title of the document and of the explorer; None for ``operad``.
        allowed_hosts: allowed values of ``Host``, ``*`` for any. If it is empty, a loopback address allows only
            the names of this machine; add the name that a proxy in front sends.
        allowed_origins: origins whose pages may send requests (CORS), ``*`` for any.
        timeout: seconds that a call without ``Operad-Timeout`` may take; None for no limit.
        max_body: the largest request body, in bytes.
        mask_errors: whether to replace the messages of undeclared exceptions by a reference to the log.
        options: further fields of `OpenAPIServerConfig`.

    Raises:
        ConfigError: ``authenticate`` cannot be called.
        ValueError: a limit is not positive.
        TypeError: `OpenAPIServerConfig` has no such field.
    """
    return OpenAPIApplication(
        registry,
        OpenAPIServerConfig(
            authenticate=authenticate,
            anonymous=anonymous,
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
