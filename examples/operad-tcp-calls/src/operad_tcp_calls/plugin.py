"""The plugin for the scheme ``tcp``, with its call map and its call server."""

from __future__ import annotations

from typing import Any

from operad import OperationRegistry
from operad.plugin import CallMap, CallServer, TransportFactory, hookimpl
from operad_tcp_calls.transport import TCP, create


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """Return the factory for the scheme ``tcp``."""
    return [TransportFactory(("tcp",), create, TCP)]


@hookimpl
def operad_call_map(transport: object, options: dict[str, Any]) -> CallMap | None:
    """Return a call map for a `TCP` transport; None for any other transport."""
    if not isinstance(transport, TCP):
        return None
    from operad_tcp_calls.call_map import TCPCallMap  # imported when it is used

    return TCPCallMap(transport, **options)


@hookimpl
def operad_call_server(
    registry: OperationRegistry, transport: object, options: dict[str, Any]
) -> CallServer | None:
    """Return a call server for a `TCP` transport; None for any other transport."""
    if not isinstance(transport, TCP):
        return None
    from operad_tcp_calls.call_server import TCPCallServer  # imported when it is used

    return TCPCallServer(registry, transport, **options)
