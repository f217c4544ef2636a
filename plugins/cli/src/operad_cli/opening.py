"""Opening the registry of a configuration: what a command needs of it, and no more."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from operad import ConfigError, OperationRegistry, Plugins, load_plugins
from operad_cli import cache
from operad_cli.finding import find

_PATIENCE = 0.7
"""Seconds after which a terminal is told what is waited for."""


@contextmanager
def quiet_plugins() -> Iterator[None]:
    """Plugins load without warnings in here; `operad plugins` shows what is wrong with which."""
    logger = logging.getLogger("operad")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_plugins_quietly() -> Plugins:
    """The installed plugins."""
    with quiet_plugins():
        return load_plugins()


def require_configuration(config: Path | None) -> Path:
    """The configuration to use. Raises `ConfigError` if there is none."""
    path = find(None if config is None else str(config))
    if path is None:
        raise ConfigError(
            "there is no operad.toml here or in a folder above; `operad init` writes one, --config PATH names one"
        )
    return Path(path)


@asynccontextmanager
async def open_registry(
    config: Path | None, operation_id: str | None = None, *, profile: str | None = None
) -> AsyncIterator[OperationRegistry]:
    """The registry of the configuration; sources that failed are in ``registry.failures``.

    With an operation's id only those sources are opened that may have it, one group after the other: a call of a
    function of one's own starts no server. Else all of them, at once.
    """
    path = require_configuration(config)
    with quiet_plugins():
        registry = OperationRegistry.from_config(path, profile=profile, sources=(), lazy=True)
    configuration = registry.configuration
    assert configuration is not None
    groups = [tuple(configuration.sources)] if operation_id is None else list(configuration.groups(operation_id))
    async with registry:
        for group in groups:
            await _load(registry, group)
            if operation_id in registry:
                break
        cache.remember(str(path), registry.specs(), operation_id)
        yield registry


async def _load(registry: OperationRegistry, names: tuple[str, ...]) -> None:
    """Load sources; where a person looks on and it takes long, say which."""
    if not sys.stderr.isatty():
        await registry.load_configured(names)
        return
    loading = asyncio.ensure_future(registry.load_configured(names))
    try:
        done, _ = await asyncio.wait([loading], timeout=_PATIENCE)
        if not done:
            from rich.console import Console

            with Console(stderr=True).status(f"loading {', '.join(names)} …"):
                await loading
        await loading
    finally:
        if not loading.done():
            loading.cancel()
            await asyncio.wait([loading])
