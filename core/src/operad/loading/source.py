"""One loaded source: its operations in a catalogue, its calls in progress, and how it is closed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from operad.errors import SourceError
from operad.operations import Operation, OperationSpec
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry
from operad.sources import SourceSession
from operad.usage import Usage

if TYPE_CHECKING:
    from operad.config.access_rules import AccessRules
    from operad.registry.pipeline import ResultPipeline

logger = logging.getLogger("operad")

_LAST_CALLS = 60.0
"""The maximum time, in seconds, that a replaced source waits for its calls in progress."""


@attrs.define(eq=False, repr=False)  # a repr would show secrets of the options
class LoadedSource:
    """One loaded source, whose operations are in the catalogue of a registry."""

    session: SourceSession
    owner: str
    """The source in messages, such as ``source "shop" (openapi)``."""
    catalogue: Catalogue
    pipeline: ResultPipeline
    rules: AccessRules
    usage: Usage
    """The counter of the source's calls in progress."""
    outer: Usage | None = None
    """The counter of the registry; ``None`` if the registry has no lifespan."""
    name: str = ""
    type: str = ""
    exclusive: bool = False
    """Whether a reload closes the source before it opens it again."""
    error: str | None = None
    """The reason why the last reload failed; ``None`` if it did not fail."""
    again: Callable[..., Awaitable[object]] = attrs.field(default=None)
    ids: set[str] = attrs.field(factory=set)
    """The ids of the source's operations."""
    _is_closed: bool = False

    def start(self, old: LoadedSource | None) -> list[OperationSpec]:
        """Add all operations or none, in place of those of ``old``, and follow changes of the session.

        Raises `RegistrationError` if an id is taken, and `SourceError` if the source offers an id twice.
        """
        entries = [self._entry(operation) for operation in self.session.operations]
        seen: set[str] = set()
        for entry in entries:
            if old is None or not old.has(entry.spec.id):
                self.catalogue.check_free(entry, "give the source another namespace")
            if entry.spec.id in seen:
                raise SourceError(f'{self.owner} offers operation "{entry.spec.id}" twice; expected different ids')
            seen.add(entry.spec.id)
        self.session.on_change(self.follow)
        for entry in entries:
            self._add(entry)
        if old is not None:
            old.leave(seen)
        return [entry.spec for entry in entries]

    def has(self, operation_id: str) -> bool:
        """Return True if the operation exists and belongs to this source; the application may have replaced it."""
        held = self.catalogue.entries.get(operation_id)
        return operation_id in self.ids and held is not None and held.owner == self.owner

    def leave(self, taken: set[str]) -> None:
        """Remove the operations, except those with an id in ``taken``, and ignore later changes of the session."""
        self._is_closed = True
        for operation_id in self.ids - taken:
            self._remove(operation_id)
        self.ids.clear()

    def follow(self, operations: Sequence[Operation[..., Any]]) -> None:
        """Update the catalogue to the session's current operations; an unusable one is logged and left out."""
        if self._is_closed:
            return
        if (usage := getattr(self.session, "usage", None)) not in (None, self.usage):  # another lifespan
            usage.within(self.outer)
            self.usage, self.pipeline = usage, attrs.evolve(self.pipeline, usage=usage)
        fresh: dict[str, Entry] = {}
        for operation in operations:
            try:
                fresh.setdefault(operation.id, self._entry(operation))
            except Exception:
                logger.exception("%s offers %.80r, which cannot be used: left out", self.owner, operation)
        for operation_id in self.ids - fresh.keys():
            self._remove(operation_id)
        for operation_id, entry in fresh.items():
            held = self.catalogue.entries.get(operation_id)
            if held is not None and held.owner != self.owner:
                text = "%s offers %s, which belongs to %s: left out; give one of them another namespace"
                logger.warning(text, self.owner, operation_id, held.label)
                continue
            offered = None if held is None else held.original or held
            if offered is None or offered.spec is not entry.spec or offered.handler is not entry.handler:
                self._add(entry)

    async def retire(self) -> None:
        """Close the session when its calls in progress have ended, or after 60 s."""
        await self.usage.end(_LAST_CALLS)
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session and remove its operations. An exception of the session is logged."""
        self._is_closed = True
        try:
            await self.session.aclose()
        except Exception:
            logger.exception("closing %s failed", self.owner)
        finally:
            self.leave(set())

    def _entry(self, operation: Operation[..., Any]) -> Entry:
        operation = self.rules.apply(operation)
        return Entry(operation.spec, operation.handler, operation.blocking, self.owner, self.pipeline, operation)

    def _add(self, entry: Entry) -> None:
        self.ids.add(entry.spec.id)
        self.catalogue.add(entry, replace=True)

    def _remove(self, operation_id: str) -> None:
        if self.has(operation_id):
            self.catalogue.remove(operation_id)
        self.ids.discard(operation_id)
