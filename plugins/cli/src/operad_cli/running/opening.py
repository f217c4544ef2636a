"""The registry of a configuration, opened with the plugins and sources that a command needs."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from operad import CallError, ErrorCode, OperationRegistry, SourceError
from operad_cli.completion import cache
from operad_cli.options import quiet_plugins, require_configuration
from operad_cli.output.progress import Line
from operad_cli.running.known_plugins import KnownPlugins, remember

if TYPE_CHECKING:
    from operad.config import Configuration

_PATIENCE = 0.7
"""Seconds after which a terminal shows which sources are loading."""
_SILENCE = 5.0
"""Further seconds after which standard error gets the names, if it is not a terminal."""
_ENOUGH = 2.5
"""Seconds after which a terminal shows the operations loaded so far."""

Meanwhile = Callable[[OperationRegistry, list[str]], None]


@asynccontextmanager
async def open_registry(
    config: Path | None,
    operation_id: str | None = None,
    *,
    profile: str | None = None,
    wait: float | None = None,
    meanwhile: Meanwhile | None = None,
) -> AsyncIterator[OperationRegistry]:
    """Open the registry of the configuration, and close it after the block. ``failures`` has the failed sources.

    For one operation, only the sources that may have it are opened, one group after another: calling a local
    function starts no server. For all operations, all sources are opened at the same time.

    Args:
        config: the path of the configuration; None for the one that `find_configuration` finds.
        operation_id: the operation to use; None for all operations.
        profile: the profile of the configuration; None for ``OPERAD_PROFILE``.
        wait: seconds after which sources that still load are skipped and become failures; None for no limit.
        meanwhile: called once with the registry and the names of the sources that still load after 2.5 s, if
            standard error is a terminal.

    Raises:
        ConfigError: there is no configuration, or it is not valid.
    """
    path = require_configuration(config)
    with quiet_plugins():
        registry, known = _with_plugins(path, profile, operation_id)
    configuration = registry.configuration
    assert configuration is not None
    groups = (
        [tuple(configuration.sources)] if operation_id is None else list(groups_for(configuration, operation_id))
    )
    async with registry:
        for group in groups:
            if group:
                if known is not None:
                    with quiet_plugins():
                        known.register(registry, group)
                await _Loading(registry, group, operation_id).finish(wait, meanwhile)
            if operation_id in registry:
                break
        cache.remember(str(path), registry.specs(), operation_id)
        yield registry


def groups_for(configuration: Configuration, operation_id: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of sources, in groups to open one after another until a group has the operation.

    The first group contains the sources with the namespace of the id. The second contains folders of functions,
    because loading them starts no process. The last contains all other sources.
    """
    namespace = operation_id.partition(".")[0]
    rest = dict(configuration.sources)
    for fits in (
        lambda name, table: table.get("namespace", name) == namespace,
        lambda name, table: table["type"] == "scanner",
        lambda name, table: True,
    ):
        if group := tuple(name for name, table in rest.items() if fits(name, table)):
            rest = {name: table for name, table in rest.items() if name not in group}
            yield group


def _with_plugins(
    path: Path, profile: str | None, operation_id: str | None
) -> tuple[OperationRegistry, KnownPlugins | None]:
    """Return a registry with all plugins; for one operation, if possible, without those to be registered later."""
    known = None if operation_id is None else KnownPlugins.recall()
    if known is not None and (registry := known.registry(path, profile)) is not None:
        return registry, known
    registry = OperationRegistry.from_config(path, profile=profile, sources=())
    remember(registry)
    return registry, None


class _Loading:
    """Sources that load at the same time. A terminal shows the names of slow sources.

    If all sources of a configuration are loaded, Ctrl-C skips the slow ones and adds them to the failures.
    """

    def __init__(self, registry: OperationRegistry, names: tuple[str, ...], operation_id: str | None) -> None:
        self._registry = registry
        self._is_list = operation_id is None
        self._tasks = {
            asyncio.ensure_future(registry.load_configured([name], operation=operation_id)): name for name in names
        }

    async def finish(self, wait: float | None, meanwhile: Meanwhile | None) -> None:
        """Wait for all sources. Add failures of sources to ``registry.failures``, and raise other errors."""
        loop = asyncio.get_running_loop()
        timer = wait is not None and loop.call_later(
            wait, self._skip, f"still starting after {wait:g} s; use --wait SECONDS to wait longer"
        )
        try:
            if await self._wait(_PATIENCE):
                await self._watch(meanwhile)
            for task in self._tasks:
                if not task.cancelled():
                    await task
        finally:
            if timer:
                timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _wait(self, timeout: float | None = None) -> list[str]:
        """Wait for at most ``timeout`` seconds. Return the names of the sources still loading."""
        return [self._tasks[task] for task in (await asyncio.wait(self._tasks, timeout=timeout))[1]]

    def _skip(self, reason: str) -> None:
        from operad.plugin import SourceFailure

        for task, name in self._tasks.items():
            if task.cancel():
                configuration = self._registry.configuration
                kind = str(configuration.sources[name].get("type")) if configuration else ""
                self._registry.failures.append(SourceFailure(name, SourceError(reason), kind))

    async def _watch(self, meanwhile: Meanwhile | None) -> None:
        """Wait for the sources still loading and show their names."""
        if not sys.stderr.isatty():
            if slow := await self._wait(_SILENCE):
                sys.stderr.write(f"waiting for {', '.join(slow)}\n")
                await self._wait()
            return
        with _at_ctrl_c((lambda: self._skip("skipped by Ctrl-C")) if self._is_list else None):
            if meanwhile is not None and (slow := await self._shown(_ENOUGH - _PATIENCE)):
                meanwhile(self._registry, slow)
            await self._shown()

    async def _shown(self, timeout: float | None = None) -> list[str]:
        """Wait with a line that names the loading sources. Return the names of those that still load."""
        hint = " (Ctrl-C to skip)" if self._is_list else ""
        end = math.inf if timeout is None else time.monotonic() + timeout
        with Line() as line:
            while (slow := [task for task in self._tasks if not task.done()]) and time.monotonic() < end:
                line.show(f"waiting for {', '.join(self._tasks[task] for task in slow)} …{hint}")
                # Shown again from time to time, because log messages clear the line.
                pause = min(end - time.monotonic(), 0.5)
                await asyncio.wait(slow, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        return [self._tasks[task] for task in slow]


@contextmanager
def _at_ctrl_c(action: Callable[[], None] | None) -> Iterator[None]:
    """Run an action on Ctrl-C instead of ending the command."""
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


def not_found(registry: OperationRegistry, operation_id: str) -> CallError:
    """Return the error for an unknown id: why it is held, or similar ids, and sources that failed or are empty."""
    import difflib

    if (reason := registry.sources.why_held(operation_id)) is not None:
        return CallError(ErrorCode.ACCESS_DENIED, reason)
    ids = [spec.id for spec in registry.specs()]
    message = f'operation "{operation_id}" not found'
    close = difflib.get_close_matches(operation_id, ids, n=3, cutoff=0.5)
    if close:
        message += "; did you mean " + " or ".join(f'"{name}"' for name in close) + "?"
    elif ids:
        message += "; `operad list` shows all operations"
    elif registry.configuration is not None and not registry.configuration.sources:
        message += f"; {registry.configuration.name} has no [sources], see `operad init`"
    message += registry.sources.why_missing(operation_id)
    return CallError(ErrorCode.OPERATION_NOT_FOUND, message, {"operationId": operation_id})
