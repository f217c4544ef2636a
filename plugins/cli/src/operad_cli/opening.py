"""Opening the registry of a configuration: what a command needs of it, and no more."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from operad import ConfigError, OperationRegistry, Plugins, SourceError, load_plugins
from operad_cli import cache
from operad_cli.finding import find

_PATIENCE = 0.7
"""Seconds after which a terminal is told what is waited for."""
_SILENCE = 5.0
"""Seconds more after which a log is told so, too."""


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
            await _load(registry, group, operation_id)
            if operation_id in registry:
                break
        cache.remember(str(path), registry.specs(), operation_id)
        yield registry


async def _load(registry: OperationRegistry, names: tuple[str, ...], operation_id: str | None) -> None:
    """Load sources; where a person looks on and it takes long, say which are waited for.

    Where all are loaded, Ctrl-C then leaves these out, and they are among the registry's failures.
    """
    if not names:
        return
    loading = {
        asyncio.ensure_future(registry.load_configured([name], operation=operation_id)): name for name in names
    }
    try:
        if (await asyncio.wait(loading, timeout=_PATIENCE))[1]:
            await _watched(registry, loading, may_leave_out=operation_id is None)
        for task in loading:
            if not task.cancelled():
                await task
    finally:
        for task in loading:
            task.cancel()
        await asyncio.wait(loading)


async def _watched(
    registry: OperationRegistry, loading: dict[asyncio.Task[None], str], *, may_leave_out: bool
) -> None:
    """Wait for what still loads, and show its names."""
    from rich.console import Console
    from rich.text import Text

    from operad.plugin import SourceFailure

    def leave_out() -> None:
        for task, name in loading.items():
            if task.cancel():
                kind = str(registry.configuration.sources[name].get("type")) if registry.configuration else ""
                registry.failures.append(SourceFailure(name, SourceError("left out by Ctrl-C"), kind))

    if not sys.stderr.isatty():
        if slow := (await asyncio.wait(loading, timeout=_SILENCE))[1]:
            sys.stderr.write(f"waiting for {', '.join(loading[task] for task in slow)}\n")
            await asyncio.wait(loading)
        return
    hint = " (Ctrl-C leaves it out)" if may_leave_out else ""
    with Console(stderr=True).status("") as status, _at_ctrl_c(leave_out if may_leave_out else None):
        while waited := [task for task in loading if not task.done()]:
            names = ", ".join(loading[task] for task in waited)
            status.update(Text(f"waiting for {names} …{hint}", overflow="ellipsis", no_wrap=True))
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _at_ctrl_c(action: Callable[[], None] | None) -> Iterator[None]:
    """Within, Ctrl-C does this instead of ending the command."""
    if action is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(action))
        yield
    finally:
        signal.signal(signal.SIGINT, before)
