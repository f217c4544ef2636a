"""The hooks that operad-serve implements. The server is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from operad.plugin import Server, hookimpl

if TYPE_CHECKING:
    from operad_serve.api.application import OpenAPIApplication


@hookimpl
def operad_servers() -> Iterable[Server]:
    """Return the server ``openapi``: the HTTP API, mounted at ``/``."""
    return (Server("openapi", _serve, _server_config, _application, "/"),)


@hookimpl
def operad_commands(cli: Any) -> None:
    """Add the command ``operad serve`` to the command line."""
    from operad_serve.command import serve

    cli.add_command(serve)


def _server_config() -> type[Any]:
    from operad_serve.api.options import OpenAPIServerConfig

    return OpenAPIServerConfig


def _application(registry: Any, config: Any) -> OpenAPIApplication:
    from operad_serve.api.application import OpenAPIApplication

    return OpenAPIApplication(registry, config)


async def _serve(registry: Any, config: Any) -> None:
    from operad_serve.api.application import serve

    await serve(registry, config)
