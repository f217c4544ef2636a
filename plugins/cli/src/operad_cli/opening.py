"""Opening the registry of a configuration: what a command needs of it, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console

from operad import OperationRegistry
from operad_cli import cache
from operad_cli.options import chosen_profile, quiet_plugins, require_configuration

_PATIENCE = 0.7
"""Seconds after which a terminal is told what is waited for."""


@asynccontextmanager
async def open_registry(config: Path | None, operation_id: str | None = None) -> AsyncIterator[OperationRegistry]:
    """The registry of the configuration; sources that failed are in ``registry.failures``.

    With an operation's id only those sources are opened that may have it, one group after the other: a call of a
    function of one's own starts no server. Else all of them, at once.
    """
    path = require_configuration(config)
    with quiet_plugins():
        registry = OperationRegistry.from_config(path, profile=chosen_profile(), sources=())
    configuration = registry.configuration
    assert configuration is not None
    groups = [tuple(configuration.sources)] if operation_id is None else list(configuration.groups(operation_id))
    async with registry:
        for group in groups:
            await _load(registry, group)
            if operation_id in registry:
                break
        cache.remember(path, registry, operation_id)
        yield registry


async def _load(registry: OperationRegistry, names: tuple[str, ...]) -> None:
    """Load sources; where a person looks on and it takes long, say which."""
    console = Console(stderr=True)
    loading = asyncio.ensure_future(registry.load_configured(names))
    try:
        done, _ = await asyncio.wait([loading], timeout=_PATIENCE if console.is_terminal else None)
        if not done:
            with console.status(f"loading {', '.join(names)} …"):
                await loading
        await loading
    finally:
        if not loading.done():
            loading.cancel()
            await asyncio.wait([loading])
