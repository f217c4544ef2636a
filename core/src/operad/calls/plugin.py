"""The plugin of this room: the source ``remote``, what the peers of a transport serve, from a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from operad.hookspecs import hookimpl
from operad.sources import Source, SourceContext, SourceSession

if TYPE_CHECKING:
    from operad.calls.config import RemoteConfig
    from operad.transports import Transport


async def load(config: RemoteConfig, context: SourceContext) -> SourceSession:
    """Connect to the peers. Raises `SourceError` if they cannot be reached, or what the transport refuses."""
    from operad.calls.remote import from_remote  # it needs the call protocol, and finding plugins does not
    from operad.config.options import with_paths

    options = with_paths(config.options, context.base_dir or Path.cwd())
    transport: Transport = context.plugins.transport(config.url, **options)
    return await from_remote(
        transport,
        context.namespace or None,  # "" keeps the peers' own ids
        plugins=context.plugins,
        wait=config.wait,
        timeout=config.timeout,
    )


def _config() -> type[RemoteConfig]:
    from operad.calls.config import RemoteConfig  # making the class takes longer than the rest of this module

    return RemoteConfig


@hookimpl
def operad_sources() -> list[Source]:
    """The source ``remote``."""
    return [Source("remote", load, _config, "What other processes serve, over a transport.")]
