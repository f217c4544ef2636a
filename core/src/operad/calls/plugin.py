"""The plugin of this room: the source ``remote``, what the peers of a transport serve, from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from operad.hookspecs import hookimpl
from operad.schemas.likeness import Record
from operad.sources import Source, SourceContext, SourceSession

if TYPE_CHECKING:
    from operad.transports import Transport


def _is_url(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if "://" not in value:
        raise ValueError(f"{attribute.name}: expected scheme://…, such as ws://127.0.0.1:8765")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RemoteConfig(Record):
    """The options of a ``remote`` source."""

    url: str = attrs.field(validator=_is_url, repr=False)  # may hold a password
    """Where the peers are, such as ``ws://127.0.0.1:8765``; its scheme chooses the transport's plugin."""
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)  # may hold a token
    """What the transport takes besides the URL, such as ``{ token = "${HUB_TOKEN}" }``."""
    wait: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    """Seconds to wait for peers to answer, where the transport does not know how many there are."""
    timeout: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Seconds that a call may take if it does not say."""


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


@hookimpl
def operad_sources() -> list[Source]:
    """The source ``remote``."""
    return [Source("remote", load, RemoteConfig, "What other processes serve, over a transport.")]
