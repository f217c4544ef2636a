"""Helpers for tests: plugins made of functions, a source with given operations, and a log of calls."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import attrs

from operad import Plugins
from operad.hookspecs import hookimpl
from operad.observers import CallOutcome, CallRecord, CallReport
from operad.operations import Operation
from operad.sources import Source, SourceContext, SourceSession


def plugins_of(*plugins: object) -> Plugins:
    """Return a `Plugins` with these plugins only. They need not be installed.

    Raises `PluginError` if a plugin is incompatible, has a misspelt hook, conflicts with another one, or fails.
    """
    made = Plugins()
    for plugin in plugins:
        made.register(plugin)
    return made


def make_plugin(name: str, /, **hooks: Any) -> ModuleType:
    """Return a module that is a plugin. Each keyword is a hook: its function, or the value that it returns."""
    module = ModuleType(name)
    for hook, value in hooks.items():
        setattr(module, hook, hookimpl(value if callable(value) else _returning(value)))
    return module


def _returning(value: Any) -> Any:
    return lambda: value


@attrs.frozen
class _NoOptions:
    pass


class StaticSource:
    """A plugin with one source, for tests. The test sets the operations of the source.

    Args:
        name: the name of the source.
        operations: the operations at first; `change` replaces them.
    """

    def __init__(self, name: str, operations: Sequence[Operation[..., Any]]) -> None:
        self.name = name
        self.sessions: list[SourceSession] = []
        """The sessions that were opened."""
        self._operations = tuple(operations)

    @hookimpl
    def operad_sources(self) -> list[Source]:
        """Return the source. The plugin contributes nothing else."""
        return [Source(self.name, self._load, _NoOptions, "given operations")]

    async def _load(self, config: _NoOptions, context: SourceContext) -> SourceSession:
        session = SourceSession(self._operations)
        self.sessions.append(session)
        return session

    def change(self, operations: Sequence[Operation[..., Any]]) -> None:
        """Replace the operations, in this source and in all registries that have loaded it."""
        self._operations = tuple(operations)
        for session in self.sessions:
            session.changed(self._operations)


class CallLog:
    """A plugin that observes calls and records them."""

    def __init__(self) -> None:
        self.started: list[CallRecord] = []
        """Calls that began, in order."""
        self.finished: list[tuple[CallRecord, CallOutcome]] = []
        """Calls that ended, in order, with their outcomes."""
        self.reported: list[tuple[CallRecord, CallReport]] = []
        """Reports of running calls, in order, with the calls."""

    @hookimpl
    def operad_call_started(self, call: CallRecord) -> None:
        """Record a call that begins."""
        self.started.append(call)

    @hookimpl
    def operad_call_reported(self, call: CallRecord, report: CallReport) -> None:
        """Record a report of a running call."""
        self.reported.append((call, report))

    @hookimpl
    def operad_call_finished(self, call: CallRecord, outcome: CallOutcome) -> None:
        """Record a call that has ended, and its outcome."""
        self.finished.append((call, outcome))
