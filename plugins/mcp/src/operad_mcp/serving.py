"""A registry as an MCP server: over HTTP (ASGI), on standard streams, or in memory.

The SDK is imported only when a registry is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from operad import OperationSpec, PluginError
from operad_mcp.server.options import MCPServeConfig

if TYPE_CHECKING:
    from operad import OperationRegistry
    from operad_auth import AnyAuthenticator, Authenticator
    from operad_mcp.server.http import MCPApplication
    from operad_mcp.server.sdk import Served

__all__ = ["Complete", "MCPServeConfig", "MCPServing", "app", "serve", "to_mcp"]

Complete = Callable[[OperationSpec, str, str], "Sequence[str] | Awaitable[Sequence[str] | None] | None"]
"""A function ``complete(spec, argument, value)``, sync or async, that returns values for an argument of a prompt
or resource template. ``value`` is the text typed so far. If the result is ``None``, the schema's values are used.
"""


def to_mcp(
    registry: OperationRegistry,
    *,
    authenticate: AnyAuthenticator | None = None,
    complete: Complete | None = None,
    **options: Any,
) -> MCPServing:
    """Return a registry as an MCP server, to be served by a method of `MCPServing`.

    Args:
        registry: the registry to serve; clients are notified of its changes.
        authenticate: returns the caller over HTTP. If ``None``, every caller is anonymous. Otherwise, requests
            without credentials are rejected, unless the option ``anonymous`` is True.
        complete: returns values for arguments of prompts and resource templates, see `Complete`. If ``None``, the
            values are those that a schema enumerates.
        options: the fields of `MCPServeConfig`; ``identity`` may be an `operad.Identity`.

    Raises:
        ConfigError: an option is unknown or cannot be used.
    """
    from operad import Identity
    from operad.plugin import check_options

    if isinstance(options.get("identity"), Identity):  # in a configuration it is a table
        options["identity"] = options["identity"].to_wire()
    config = check_options(options, MCPServeConfig, where="to_mcp")
    return MCPServing(registry, config, authenticate=authenticate, complete=complete)


class MCPServing:
    """A registry as an MCP server, made by `to_mcp`.

    With ``tools = "code"``, the methods that serve raise `PluginError` if operad-code is not installed.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        config: MCPServeConfig,
        *,
        authenticate: AnyAuthenticator | None = None,
        complete: Complete | None = None,
    ) -> None:
        self.config = config
        self._registry = registry
        self._complete = complete
        self._authenticate: Authenticator | None = None
        if authenticate is not None:
            from operad_auth import as_authenticator

            self._authenticate = as_authenticator(authenticate)

    @cached_property
    def _served(self) -> Served:
        from operad_mcp.server.door import Door
        from operad_mcp.server.sdk import Served

        return Served(Door(self._registry, self.config), self._complete)

    def asgi(self, path: str = "/mcp") -> MCPApplication:
        """Return an ASGI 3 application that serves streamable HTTP, for all revisions of the protocol.

        It responds at its own root and at ``path``, so that it can be mounted in another application or run alone.

        Raises:
            PluginError: operad-serve is not installed.
        """
        _require_serve()
        from operad_mcp.server.http import MCPApplication

        return MCPApplication(self._served, self._authenticate, path)

    def server(self) -> Any:
        """Return a new low-level server of the SDK, for clients in this process."""
        return self._served.server()

    async def stdio(self) -> None:
        """Serve on standard streams until stdin ends, or the task is cancelled.

        Meanwhile, output that handlers print goes to stderr, and handlers that read stdin find it empty.
        """
        from operad_mcp.server.stdio import serve_stdio

        await serve_stdio(self._served)

    async def resource_updated(self, uri: str) -> None:
        """Notify the clients that watch the resource ``uri`` that it changed."""
        await self._served.changes.updated(uri)

    def well_known_routes(self) -> list[Any]:
        """Return Starlette routes for the metadata of the protected resource; empty if `resource_url` is not set.

        Add them to an application that mounts this one. Clients request the metadata at the root of the address
        (RFC 9728, 3.1), which a mounted application does not serve.
        """
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        document, url = self.config.resource_metadata, self.config.metadata_url
        if document is None or url is None:
            return []

        async def metadata(request: Any) -> JSONResponse:
            return JSONResponse(document, headers={"access-control-allow-origin": "*"})

        return [Route(urlsplit(url).path, metadata, methods=["GET"])]


async def serve(registry: OperationRegistry, config: MCPServeConfig) -> None:
    """Serve over HTTP at ``config.listen`` until cancelled. If it is ``None``, serve on standard streams instead.

    Raises:
        ConfigError: ``listen`` is not an address of this machine, which is required because every caller is
            anonymous.
        PluginError: HTTP needs operad-serve, which is not installed.
    """
    serving = MCPServing(registry, config)
    if config.listen is None:
        await serving.stdio()
        return
    app = serving.asgi()
    from operad_serve.listening import parse_address, serve_alone

    await serve_alone(app, parse_address(config.listen), is_guarded=False)


def _require_serve() -> None:
    """Raise `PluginError` if operad-serve is missing."""
    if find_spec("operad_serve") is None:
        raise PluginError("MCP over HTTP needs operad-serve; install it: pip install 'operad-mcp[serve]'")


def app(registry: OperationRegistry, config: MCPServeConfig) -> MCPApplication:
    """Return the application that `operad serve` mounts. The front door of `operad serve` admits its callers.

    Raises `PluginError` if operad-serve is not installed.
    """
    return MCPServing(registry, config).asgi()
