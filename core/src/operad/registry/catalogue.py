"""The catalogue: the operations of a registry by id, and adding, replacing, removing and finding them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from operad.errors import RegistrationError
from operad.operations import Handler, OperationSpec
from operad.registry.entry import Entry, described
from operad.registry.search import MakeIndex, SearchIndex, WordIndex

logger = logging.getLogger("operad")

Observers = tuple[Callable[..., Any], ...]

_STEP = 0.005
"""Seconds for which an index is built before the event loop gets a turn."""
_WORN = 64
"""The number of changes after which a new index is made, in addition to a quarter of the operations."""


class Catalogue:
    """The entries of a registry by id, and the handlers whose spec is not registered yet.

    Args:
        added: called with the spec of each operation that was added.
        removed: called with the spec of each operation that was removed.
        make_index: makes a search index; called for the first search, and again after many changes.
    """

    def __init__(self, added: Observers = (), removed: Observers = (), make_index: MakeIndex = WordIndex) -> None:
        self.entries: dict[str, Entry] = {}
        self.handlers: dict[str, tuple[Handler, bool | None]] = {}
        """Handlers that were registered before their spec."""
        self.change: Callable[[Entry], Entry | None] | None = None
        """Changes entries when they are added, or leaves them out; see `Interceptor`."""
        self._added = added
        self._removed = removed
        self._watchers: list[Callable[[str], object]] = []
        self._sorted: tuple[OperationSpec, ...] | None = None
        self.make_index = make_index
        self._index: SearchIndex | None = None
        self._index_age: int  # changes since it was made
        self._index_lock = asyncio.Lock()
        self._late: set[str] | None = None
        """The ids that changed since a new index has been growing."""

    # --- changing --------------------------------------------------------------------------------

    def add(self, entry: Entry, *, replace: bool = False) -> None:
        """Add an operation. If ``entry`` has no handler, it gets the handler that was registered for its id.

        Raises:
            RegistrationError: ``replace`` is false, and the id has a spec already, or would get a second handler.
        """
        operation_id = entry.spec.id
        old = self.entries.get(operation_id)
        if not replace and (old is not None or self.handlers):
            self.check_free(entry)
        if self.handlers:
            waiting = self.handlers.pop(operation_id, None)
            if waiting is not None and entry.handler is None:
                entry.handler, entry.blocking = waiting
        shown = self._shown(entry)
        if shown is None:
            if old is not None:
                self.remove(operation_id)
            return
        self.entries[operation_id] = entry = shown
        self._changed(operation_id, None if old is None else old.spec, entry.spec)

    def check_free(self, entry: Entry, advice: str = "rename one of them, or pass replace=True") -> None:
        """Raise `RegistrationError`, with ``advice``, if the id has a spec, or would get a second handler."""
        operation_id = entry.spec.id
        old = self.entries.get(operation_id)
        if old is not None:
            first = f'operation "{operation_id}" is registered already by {old.label}'
            raise RegistrationError(f"{first}, and now again by {entry.label}; {advice}")
        waiting = self.handlers.get(operation_id)
        if waiting is not None and entry.handler is not None:
            raise _second_handler(operation_id, described(waiting[0]), entry.label)

    def add_spec(self, entry: Entry, *, replace: bool = False) -> None:
        """Add a spec without a handler; with ``replace``, the operation keeps its handler."""
        old = self.entries.get(entry.spec.id)
        if replace and old is not None:
            entry.handler, entry.blocking = old.handler, old.blocking
        self.add(entry, replace=replace)

    def add_handler(
        self, operation_id: str, handler: Handler, blocking: bool | None, *, replace: bool = False
    ) -> None:
        """Add the handler of an id. Raises `RegistrationError` if the id has one and ``replace`` is false."""
        old = self.entries.get(operation_id)
        taken = self.handlers.get(operation_id, (None,))[0] if old is None else old.handler
        if taken is not None and not replace:
            owner = described(taken) if old is None else old.label
            raise _second_handler(operation_id, owner, described(handler))
        if old is None:
            self.handlers[operation_id] = handler, blocking
        else:
            base = old.original or old
            entry = self._shown(Entry(base.spec, handler, blocking, base.owner, base.pipeline))
            if entry is None:
                self.remove(operation_id)
            else:
                self.entries[operation_id] = entry
                self._changed(operation_id, old.spec, entry.spec)

    def _shown(self, entry: Entry) -> Entry | None:
        """Return the entry as interceptors change it, once it has a handler; ``None`` to leave it out."""
        return entry if self.change is None or entry.handler is None else self.change(entry)

    def remove(self, operation_id: str) -> None:
        """Remove an operation. Raises `RegistrationError` if no operation has this id."""
        entry = self.entries.pop(operation_id, None)
        if entry is None:
            raise RegistrationError(f'operation "{operation_id}" is not registered, so it cannot be removed')
        self._changed(operation_id, entry.spec, None)

    def _changed(self, operation_id: str, old: OperationSpec | None, new: OperationSpec | None) -> None:
        self._sorted = None
        self._index_change(operation_id, new)
        if self._watchers:
            self._tell(operation_id)
        if not (self._added or self._removed) or _same(old, new):
            return
        if old is not None:
            _notify(self._removed, old)
        if new is not None:
            _notify(self._added, new)

    # --- watching --------------------------------------------------------------------------------

    def watch(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call ``callback``, which must not raise, with the operation's id after each change.

        Call the returned function to stop.
        """

        # A separate object for each registration, so that each can be removed on its own.
        watcher = partial(callback)

        def stop() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        self._watchers.append(watcher)
        return stop

    def _tell(self, operation_id: str) -> None:
        for watcher in tuple(self._watchers):
            watcher(operation_id)

    # --- finding ---------------------------------------------------------------------------------

    def handler(self, operation_id: str) -> Handler | None:
        """Return the handler of an id, even if the id has no spec yet; ``None`` without a handler."""
        entry = self.entries.get(operation_id)
        return self.handlers.get(operation_id, (None,))[0] if entry is None else entry.handler

    def specs(self) -> tuple[OperationSpec, ...]:
        """Return all specs, sorted by id."""
        if self._sorted is None:
            entries = self.entries
            self._sorted = tuple(entries[operation_id].spec for operation_id in sorted(entries))
        return self._sorted

    def search(self, query: str, limit: int) -> list[OperationSpec]:
        """Return at most ``limit`` specs that match ``query``, best first; make the index if it is missing."""
        entries = self.entries
        if limit <= 0:
            return []
        if self._index is None:
            self._index, self._index_age = self.make_index(self.specs()), 0
        found = self._index.search(query, limit)
        return [entries[operation_id].spec for operation_id in found if operation_id in entries]

    async def prepare_search(self) -> None:
        """Make the search index, if it is missing, in steps between which the event loop runs."""
        async with self._index_lock:
            if self._index is None:
                await self._grow(self.make_index(()))

    async def _grow(self, index: SearchIndex) -> None:
        self._late = set()
        try:
            step = perf_counter()
            for spec in self.specs():
                index.add(spec)
                if perf_counter() - step > _STEP:
                    await asyncio.sleep(0)
                    step = perf_counter()
                    if self._index is not None:  # a search did not wait
                        return
            for operation_id in self._late:
                if (entry := self.entries.get(operation_id)) is None:
                    index.remove(operation_id)
                else:
                    index.add(entry.spec)
            self._index, self._index_age = index, 0
        finally:
            self._late = None

    def _index_change(self, operation_id: str, spec: OperationSpec | None) -> None:
        if self._late is not None:
            self._late.add(operation_id)
        if self._index is None:
            return
        self._index_age += 1
        if self._index_age > _WORN + len(self.entries) // 4:
            self._index = None  # the next search makes a new one
        elif spec is None:
            self._index.remove(operation_id)
        else:
            self._index.add(spec)


def _second_handler(operation_id: str, first: str, second: str) -> RegistrationError:
    both = f"has a handler already, from {first}, and now another one from {second}"
    return RegistrationError(f'operation "{operation_id}" {both}; pass replace=True to replace it')


def _same(old: OperationSpec | None, new: OperationSpec | None) -> bool:
    """Return True if a source that listed its operations again lists this one unchanged."""
    return old is new or (old is not None and new is not None and old.to_wire() == new.to_wire())


def _notify(observers: Observers, spec: OperationSpec) -> None:
    for observer in observers:
        try:
            observer(spec=spec)
        except Exception:
            logger.exception("observer %r failed for operation %s", observer, spec.id)
