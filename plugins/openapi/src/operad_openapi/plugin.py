"""What operad-openapi contributes. Nothing heavy is imported before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from operad.plugin import EnvelopeKind, Server, Source, hookimpl
from operad_openapi._serving.options import OpenAPIServerConfig
from operad_openapi.envelopes import HTTP_KIND
from operad_openapi.source import OpenAPISourceConfig, load, login

if TYPE_CHECKING:
    from operad.plugin import ASGIApplication


@hookimpl
def operad_envelope_kinds() -> Iterable[EnvelopeKind]:
    """The kind ``http``."""
    return (HTTP_KIND,)


@hookimpl
def operad_sources() -> Iterable[Source]:
    """The source ``openapi``."""
    return (
        Source(
            name="openapi",
            load=load,
            config_type=OpenAPISourceConfig,
            login=login,
            description="A REST API described by an OpenAPI document (2.0, 3.0, 3.1, 3.2; JSON or YAML).",
        ),
    )


@hookimpl
def operad_servers() -> Iterable[Server]:
    """The server ``openapi``."""
    return (Server("openapi", _serve, OpenAPIServerConfig, _application, "/"),)


def _application(registry: Any, config: Any) -> ASGIApplication:
    from operad_openapi._serving.application import OpenAPIApplication

    return OpenAPIApplication(registry, config)


async def _serve(registry: Any, config: Any) -> None:
    from operad_openapi._serving.running import serve

    await serve(registry, config)
