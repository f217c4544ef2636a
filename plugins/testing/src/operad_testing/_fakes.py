"""Small real parts for tests: plugins from functions, a source with given operations, a log of calls."""

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
    """Return exactly these plugins, installed or not. Raises `PluginError` if one cannot be loaded."""
    made = Plugins()
    for plugin in plugins:
        made.register(plugin)
    return made


def make_plugin(name: str, /, **hooks: Any) -> ModuleType:
    """Return a plugin module with the given hooks: functions, or the list that a contributing hook returns."""
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
    """A source with given operations, as a plugin; `change` replaces them while a registry holds them."""

    def __init__(self, name: str, operations: Sequence[Operation[..., Any]]) -> None:
        self.name = name
        self.sessions: list[SourceSession] = []
        """The sessions that were opened."""
        self._operations = tuple(operations)

    @hookimpl
    def operad_sources(self) -> list[Source]:
        """Return the source."""
        return [Source(self.name, self._load, _NoOptions, "given operations")]

    async def _load(self, config: _NoOptions, context: SourceContext) -> SourceSession:
        session = SourceSession(self._operations)
        self.sessions.append(session)
        return session

    def change(self, operations: Sequence[Operation[..., Any]]) -> None:
        """Replace the operations."""
        self._operations = tuple(operations)
        for session in self.sessions:
            session.changed(self._operations)


class CallLog:
    """An observer, as a plugin, that records calls."""

    def __init__(self) -> None:
        self.started: list[CallRecord] = []
        """Calls that began, in order."""
        self.finished: list[tuple[CallRecord, CallOutcome]] = []
        """Calls that ended, in order, and how."""
        self.reported: list[tuple[CallRecord, CallReport]] = []
        """What calls reported meanwhile, in order."""

    @hookimpl
    def operad_call_started(self, call: CallRecord) -> None:
        """Record the call."""
        self.started.append(call)

    @hookimpl
    def operad_call_reported(self, call: CallRecord, report: CallReport) -> None:
        """Record the report."""
        self.reported.append((call, report))

    @hookimpl
    def operad_call_finished(self, call: CallRecord, outcome: CallOutcome) -> None:
        """Record the call and its outcome."""
        self.finished.append((call, outcome))
