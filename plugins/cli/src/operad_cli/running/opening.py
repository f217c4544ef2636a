"""Opening the registry of a configuration: what a command needs of it, and no more."""

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

from operad import CallError, ErrorCode, OperationRegistry, SourceError
from operad_cli.completion import cache
from operad_cli.options import quiet_plugins, require_configuration
from operad_cli.output.progress import Line
from operad_cli.running.known_plugins import KnownPlugins, remember

_PATIENCE = 0.7
"""Seconds after which a terminal is told what is waited for."""
_SILENCE = 5.0
"""Seconds more after which a log is told so, too."""
_ENOUGH = 2.5
"""Seconds after which a terminal is shown what there is already."""

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
    """The registry of the configuration; sources that failed are in ``registry.failures``.

    With an operation's id only those sources are opened that may have it, one group after the other: a call of a
    function of one's own starts no server. Else all of them, at once.

    Args:
        config: the configuration; default: the one that `find` finds.
        operation_id: the operation that will be used.
        profile: the profile to lay over the configuration.
        wait: seconds after which sources that still start are left out, and are among the failures; ``None``: as
            long as each may take.
        meanwhile: called once at a terminal, where some sources take long, with the registry and their names.
    """
    path = require_configuration(config)
    with quiet_plugins():
        registry, known = _with_plugins(path, profile, operation_id)
    configuration = registry.configuration
    assert configuration is not None
    groups = [tuple(configuration.sources)] if operation_id is None else list(configuration.groups(operation_id))
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


def _with_plugins(
    path: Path, profile: str | None, operation_id: str | None
) -> tuple[OperationRegistry, KnownPlugins | None]:
    """Return a registry with all plugins; for one operation, if possible, without plugins registered later."""
    known = None if operation_id is None else KnownPlugins.recall()
    if known is not None and (registry := known.registry(path, profile)) is not None:
        return registry, known
    registry = OperationRegistry.from_config(path, profile=profile, sources=())
    remember(registry)
    return registry, None


class _Loading:
    """Sources that load at once; where a person looks on and it takes long, which are waited for is said.

    Where all are loaded, Ctrl-C then leaves these out, and they are among the registry's failures.
    """

    def __init__(self, registry: OperationRegistry, names: tuple[str, ...], operation_id: str | None) -> None:
        self._registry = registry
        self._is_list = operation_id is None
        self._tasks = {
            asyncio.ensure_future(registry.load_configured([name], operation=operation_id)): name for name in names
        }

    async def finish(self, wait: float | None, meanwhile: Meanwhile | None) -> None:
        """Wait for all of them. Raises what loading one raises, other than that it failed."""
        loop = asyncio.get_running_loop()
        timer = wait is not None and loop.call_later(
            wait, self._leave_out, f"it still starts after {wait:g} s; --wait SECONDS waits longer"
        )
        try:
            if await self._wait(_PATIENCE):
                await self._watched(meanwhile)
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
        """Wait so long, in seconds; the names of those that still load."""
        return [self._tasks[task] for task in (await asyncio.wait(self._tasks, timeout=timeout))[1]]

    def _leave_out(self, reason: str) -> None:
        from operad.plugin import SourceFailure

        for task, name in self._tasks.items():
            if task.cancel():
                configuration = self._registry.configuration
                kind = str(configuration.sources[name].get("type")) if configuration else ""
                self._registry.failures.append(SourceFailure(name, SourceError(reason), kind))

    async def _watched(self, meanwhile: Meanwhile | None) -> None:
        """Wait for what still loads, and show its names."""
        if not sys.stderr.isatty():
            if slow := await self._wait(_SILENCE):
                sys.stderr.write(f"waiting for {', '.join(slow)}\n")
                await self._wait()
            return
        with _at_ctrl_c((lambda: self._leave_out("left out by Ctrl-C")) if self._is_list else None):
            if meanwhile is not None and (slow := await self._shown(_ENOUGH - _PATIENCE)):
                meanwhile(self._registry, slow)
            await self._shown()

    async def _shown(self, timeout: float | None = None) -> list[str]:
        """Wait with a line that names the loading sources. Return the names of those that still load."""
        hint = " (Ctrl-C leaves it out)" if self._is_list else ""
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


def not_found(registry: OperationRegistry, operation_id: str) -> CallError:
    """The error for an unknown id: with near ones, and with the sources that failed."""
    import difflib

    ids = [spec.id for spec in registry.specs()]
    message = f'operation "{operation_id}" not found'
    close = difflib.get_close_matches(operation_id, ids, n=3, cutoff=0.5)
    if close:
        message += "; did you mean " + " or ".join(f'"{name}"' for name in close) + "?"
    elif ids:
        message += f"; `operad list` shows the {len(ids)} there are"
    elif registry.configuration is not None and not registry.configuration.sources:
        message += f"; {registry.configuration.name} has no [sources], `operad init` shows how they are written"
    failures = registry.failures
    failures = [failure for failure in failures if operation_id.startswith(f"{failure.name}.")] or failures
    if len(failures) == 1:
        message += f"; source [sources.{failures[0].name}] is not loaded: {failures[0].error}"
    elif failures:
        names = ", ".join(sorted(failure.name for failure in failures))
        message += f"; these sources are not loaded, `operad list` says why: {names}"
    return CallError(ErrorCode.OPERATION_NOT_FOUND, message, {"operationId": operation_id})
