"""The plugin ``calls``: call maps and call servers for any transport, and the source ``remote``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from operad import SourceError
from operad.plugin import Source, SourceContext, SourceSession, hookimpl

if TYPE_CHECKING:
    from operad import OperationRegistry
    from operad.calls import CallMap, CallServer, Options
    from operad.transports import Transport
    from operad_calls.config import RemoteConfig


async def load(config: RemoteConfig, context: SourceContext) -> SourceSession:
    """Connect to the peers of a source ``remote``, and return a session with their operations.

    Raises:
        SourceError: the peers cannot be reached, or the transport of the URL does not use the call protocol.
    """
    # The call protocol is imported here: finding plugins does not need it.
    from operad.config import with_paths
    from operad.transports import Transport
    from operad_calls.federation.remote import from_remote

    options = with_paths(config.options, context.base_dir or Path.cwd())
    transport: object = context.plugins.transport(config.url, **options)
    if not isinstance(transport, Transport):
        scheme = config.url.partition(":")[0]
        raise SourceError(
            f"remote: url: expected a transport such as ws://, got {scheme}://, which lists no operations"
        )
    return await from_remote(
        transport,
        context.namespace or None,  # "" keeps the ids of the peers
        plugins=context.plugins,
        wait=config.wait,
        timeout=config.timeout,
    )


def _config() -> type[RemoteConfig]:
    from operad_calls.config import RemoteConfig  # making the class takes longer than the rest of this module

    return RemoteConfig


@hookimpl
def operad_sources() -> list[Source]:
    """Return the source ``remote``."""
    return [Source("remote", load, _config, "Operations of other processes, over a transport.")]


@hookimpl(trylast=True)
def operad_call_map(transport: Transport, options: Options) -> CallMap:
    """Return a `PendingRequestMap`. It works with any transport, so other plugins are asked first."""
    from operad_calls.calling.map import PendingRequestMap

    return PendingRequestMap(transport, **options)


@hookimpl(trylast=True)
def operad_call_server(registry: OperationRegistry, transport: Transport, options: Options) -> CallServer:
    """Return a `CallHandler`. It works with any transport, so other plugins are asked first."""
    from operad_calls.serving.handler import CallHandler
    from operad_calls.settings import CallSettings

    limits = {name: options[name] for name in options if name in attrs.fields_dict(CallSettings)}
    others = {name: options[name] for name in options if name not in limits}
    others["settings"] = options.get("settings", CallSettings()).updated(**limits)
    return CallHandler(registry, transport, **others)
