"""Views: a registry as somebody should see it, some of its operations, under other names, with more required."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, Self

import attrs

from operad.access import AccessControl, check_access
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import RegistrationError
from operad.failures import operation_not_found
from operad.functions.typed_calls import TypedCalls, with_key
from operad.operations import Handler, Operation, OperationSpec, Pages
from operad.registry.catalogue import Catalogue
from operad.registry.deadline import earlier
from operad.registry.execution import Execution
from operad.registry.handles import Browsable
from operad.registry.interceptors import patterns_of
from operad.registry.search import SearchIndex
from operad.subscriptions import Subscription

if TYPE_CHECKING:
    from operad.config.access_rules import AccessRules

logger = logging.getLogger("operad")

Rename = Mapping[str, str] | Callable[[str], str]
"""``{"old.id": "new.id"}``, or what answers the new id of an old one."""


class Viewed(Protocol):
    """What a view needs of the registry besides its operations."""

    async def describe(self, operation_id: str) -> OperationSpec | None:
        """The spec of an operation, complete."""

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call after each change."""


@attrs.frozen(kw_only=True)
class Selection:
    """Which operations a view shows, and how."""

    include: tuple[str, ...] = attrs.field(default=("*",), converter=patterns_of)
    exclude: tuple[str, ...] = attrs.field(default=(), converter=patterns_of)
    prefix: str | None = None
    rename: Rename | None = None
    access: AccessRules

    def chooses(self, operation_id: str) -> bool:
        """Whether the operation is shown at all."""
        return any(fnmatchcase(operation_id, pattern) for pattern in self.include) and not any(
            fnmatchcase(operation_id, pattern) for pattern in self.exclude
        )

    def shown(self, spec: OperationSpec) -> OperationSpec:
        """The spec as the view shows it. Raises `RegistrationError` for a name or requirement that cannot be."""
        id = spec.id
        if callable(self.rename):
            id = self.rename(id)
        elif self.rename is not None:
            id = self.rename.get(id, id)
        namespace, dot, name = id.partition(".")
        if not dot:
            raise RegistrationError(f'rename: expected "namespace.name" for "{spec.id}", got "{id}"')
        if self.prefix is not None:
            namespace, name = self.prefix, id
        control = self.access.control(spec)
        if control is not None:
            combined = combined_access(spec.access_control, control, spec.id)
            return attrs.evolve(spec, namespace=namespace, name=name, access_control=combined)
        return (
            spec if id == spec.id and self.prefix is None else attrs.evolve(spec, namespace=namespace, name=name)
        )


def combined_access(first: AccessControl, second: AccessControl, where: str) -> AccessControl:
    """What requires all that two of them require. Raises `RegistrationError` where no one can say that."""
    any_of = [control.required_scopes_any for control in (first, second) if control.required_scopes_any]
    resources = [control for control in (first, second) if control.resource_type is not None]
    if (len(any_of) == 2 and set(any_of[0]) != set(any_of[1])) or len(resources) == 2:
        raise RegistrationError(
            f'access of "{where}": it has such a requirement already; add required_scopes, of which all are needed'
        )
    guard = resources[0] if resources else AccessControl()
    return attrs.evolve(
        guard,
        required_scopes=tuple(dict.fromkeys((*first.required_scopes, *second.required_scopes))),
        required_scopes_any=any_of[0] if any_of else (),
    )


@attrs.frozen
class _Shown:
    """An operation in a view: the one that is called, what the view shows of it, and what views require for it."""

    base: str
    spec: OperationSpec
    added: tuple[AccessControl, ...]


class RegistryView(TypedCalls, Browsable):
    """A part of a registry, under names of its own, wherever a registry can be; it follows the registry's changes.

    It is read-only, and made at once. See `OperationRegistry.view`.
    """

    def __init__(
        self,
        registry: Viewed,
        catalogue: Catalogue,
        execution: Execution,
        selection: Selection,
        base: RegistryView | None = None,
    ) -> None:
        self._registry, self._catalogue, self._execution = registry, catalogue, execution
        self._selection, self._base = selection, base
        self._version: int
        self._shown: dict[str, _Shown] = {}
        self._direct: dict[Any, str] = {}
        """What is only called by another name: no view requires anything of its callers."""
        self._specs: tuple[OperationSpec, ...] = ()
        self._index: SearchIndex | None = None
        self._left_out: set[str] = set()
        self._follow(strict=True)
        catalogue.listen(self._changed)

    def view(self, **options: Any) -> RegistryView:
        """A view of this view; as `OperationRegistry.view`."""
        return RegistryView(self._registry, self._catalogue, self._execution, selection_of(**options), self)

    # What a view passes on. Everything else it does itself, or not at all: nothing new leads around it. (By name,
    # without `__getattr__`, which makes every attribute of a class slower.)
    configuration = property(attrgetter("_registry.configuration"))
    configured = property(attrgetter("_registry.configured"))
    failures = property(attrgetter("_registry.failures"))
    observe = property(attrgetter("_registry.observe"))
    plugins = property(attrgetter("_registry.plugins"))
    source_login = property(attrgetter("_registry.source_login"))
    sources = property(attrgetter("_registry.sources"))
    transport_options = property(attrgetter("_registry.transport_options"))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RegistrationError("a view is read-only; change the registry that it shows")

    load = register = register_handler = register_spec = unregister = use = _refuse

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing: what the registry has opened, it closes."""

    async def aclose(self) -> None:
        """Nothing: what the registry has opened, it closes."""

    # --- following -------------------------------------------------------------------------------

    def _changed(self) -> None:
        """What is called by another name alone is called without a look at the version: so nothing is."""
        self._direct = {}

    def _table(self) -> dict[str, _Shown]:
        if self._version != self._catalogue.version:
            self._follow(strict=False)
        return self._shown

    def _follow(self, *, strict: bool) -> None:
        """Read the registry anew; who had a name keeps it, and what clashes with it is left out."""
        version = self._catalogue.version
        below = self._below()
        fresh: dict[str, _Shown] = {}
        had = {shown.base: id for id, shown in self._shown.items()}
        for base in sorted(below, key=lambda base: (base not in had, base)):
            spec, added = below[base]
            try:
                shown = self._selection.shown(spec)
                if shown.id in fresh:
                    raise RegistrationError(
                        f'"{base}" and "{fresh[shown.id].base}" are both "{shown.id}" in a view'
                    )
            except RegistrationError as error:
                if strict:
                    raise
                if base not in self._left_out:
                    logger.warning("left out of a view: %s", error)
                    self._left_out.add(base)
                continue
            self._left_out.discard(base)
            control = self._selection.access.control(spec)
            fresh[shown.id] = _Shown(base, shown, added if control is None else (*added, control))
        self._shown, self._version, self._index = fresh, version, None
        self._direct = {id: shown.base for id, shown in fresh.items() if not shown.added}
        self._specs = tuple(fresh[id].spec for id in sorted(fresh))

    def _below(self) -> dict[str, tuple[OperationSpec, tuple[AccessControl, ...]]]:
        """What is chosen of the registry, or of the view below, by the id of the registry."""
        if self._base is None:
            return {spec.id: (spec, ()) for spec in self._catalogue.specs() if self._selection.chooses(spec.id)}
        table = self._base._table()
        return {
            shown.base: (shown.spec, shown.added) for id, shown in table.items() if self._selection.chooses(id)
        }

    # --- looking up ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._table())

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._table()

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """The spec of an operation as the view shows it, or ``None``."""
        shown = self._table().get(operation_id)
        return None if shown is None else shown.spec

    async def describe(self, operation_id: str) -> OperationSpec | None:
        """As `get_spec`, complete."""
        shown = self._table().get(operation_id)
        if shown is not None:
            await self._registry.describe(shown.base)
        return self.get_spec(operation_id)

    def get_handler(self, operation_id: str) -> Handler | None:
        """The handler of an operation, or ``None``."""
        shown = self._table().get(operation_id)
        return None if shown is None else self._catalogue.handler(shown.base)

    def specs(self) -> Sequence[OperationSpec]:
        """All specs, sorted by id; a read-only snapshot."""
        self._table()
        return self._specs

    def search(self, query: str, limit: int = 10) -> list[OperationSpec]:
        """The operations that fit ``query`` best, best first."""
        table = self._table()
        if self._index is None:
            self._index = self._catalogue.make_index(self._specs)
        return [table[operation_id].spec for operation_id in self._index.search(query, limit)]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after each change of the registry; what is answered ends that."""
        return self._registry.on_change(callback)

    # --- calling ---------------------------------------------------------------------------------

    async def execute(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> ResponseEnvelope[Any]:
        """As `OperationRegistry.execute`; an `Operation` stands for its id in the registry."""
        execution = self._execution
        call = execution.new_call(context if idempotency_key is None else with_key(context, idempotency_key))
        if timeout is not None:
            call.deadline = earlier(call.deadline, timeout)
        base = self._direct.get(operation_id)
        is_watched = execution.observed and execution.observers.looks
        if base is not None and not is_watched:
            return await execution.run(base, input, call)
        shown, called_as = self._find(operation_id)
        if is_watched:
            base = called_as if shown is None else shown.base
            with execution.observers.watch(execution.record(base, call, called_as), call) as watch:
                envelope = await execution.run(_admitted(shown, called_as, input, call), input, call)
                watch.items = 1
                return envelope
        return await execution.run(_admitted(shown, called_as, input, call), input, call)

    def subscribe(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """As `OperationRegistry.subscribe`."""
        execution = self._execution
        call = execution.new_call(context)
        shown, called_as = self._find(operation_id)
        stream = self._stream(shown, called_as, input, call, timeout)
        if execution.observed and execution.observers.looks:
            stream = execution.watched(stream, called_as if shown is None else shown.base, call, called_as)
        return Subscription(stream)

    def pages(self, operation_id: str) -> Pages | None:
        """How to go on in a listing, if its source knows."""
        shown, _ = self._find(operation_id)
        entry = None if shown is None else self._catalogue.entries.get(shown.base)
        return None if entry is None else entry.pages

    async def download(
        self, operation_id: str, input: Any = None, context: OperationContext | None = None
    ) -> AsyncGenerator[bytes, None]:
        """As `OperationRegistry.download`."""
        call = self._execution.new_call(context)
        shown, called_as = self._find(operation_id)
        async with aclosing(
            self._execution.download(_admitted(shown, called_as, input, call), input, call)
        ) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream(
        self, shown: _Shown | None, called_as: str, input: Any, call: OperationContext, timeout: float | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        async with aclosing(
            self._execution.stream(_admitted(shown, called_as, input, call), input, call, timeout)
        ) as items:
            async for envelope in items:
                yield envelope

    def _find(self, operation_id: str | Operation[..., Any]) -> tuple[_Shown | None, str]:
        table = self._shown if self._version == self._catalogue.version else self._table()
        if isinstance(operation_id, Operation):
            base = operation_id.id
            operation_id = next((id for id, shown in table.items() if shown.base == base), base)
        return table.get(operation_id), operation_id


def _admitted(shown: _Shown | None, called_as: str, input: Any, call: OperationContext) -> str:
    """The registry's id of an operation, after what views require was checked. Raises `CallError`."""
    if shown is None:
        raise operation_not_found(called_as)
    if shown.added and not call.trusted:
        for control in shown.added:
            check_access(control, call.identity, input)
    return shown.base


def selection_of(
    *,
    include: str | Iterable[str] = "*",
    exclude: str | Iterable[str] = (),
    prefix: str | None = None,
    rename: Rename | None = None,
    access: AccessControl | Mapping[str, Any] | None = None,
) -> Selection:
    """The selection of `OperationRegistry.view`'s arguments. Raises `ConfigError` for unusable requirements."""
    from operad.config.access_rules import AccessRules  # and cattrs with it: not for who makes no view

    rules = AccessRules.of(access, "view")
    return Selection(include=include, exclude=exclude, prefix=prefix, rename=rename, access=rules)
