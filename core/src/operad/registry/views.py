"""Views: read-only registries that show operations of another registry, with new ids and more requirements."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

import attrs

from operad.access import AccessControl, check_access
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import RegistrationError
from operad.failures import operation_not_found
from operad.observers import Watch
from operad.operations import Operation, OperationSpec
from operad.registry.base import RegistryBase
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry
from operad.registry.execution import Envelopes, Execution
from operad.registry.interceptors import patterns_of

if TYPE_CHECKING:
    from operad.config.access_rules import AccessRules

logger = logging.getLogger("operad")

Rename = Mapping[str, str] | Callable[[str], str]
"""``{"old.id": "new.id"}``, or a function that takes an old id and returns the new one."""

_PASSED_ON = frozenset({
    "configuration", "configured", "failures", "observe", "plugins", "source_login", "sources",
    "transport_options",
})  # fmt: skip
"""Attributes that a view takes from its registry."""


def _rules(access: AccessControl | Mapping[str, Any] | None) -> AccessRules:
    from operad.config.access_rules import AccessRules  # imports cattrs: only for a registry with views

    return AccessRules.of(access, "view")


@attrs.frozen(kw_only=True)
class Selection:
    """The options of a view: its operations, ids and requirements. Raises `ConfigError` for a wrong ``access``."""

    include: tuple[str, ...] = attrs.field(default=("*",), converter=patterns_of)
    exclude: tuple[str, ...] = attrs.field(default=(), converter=patterns_of)
    prefix: str | None = None
    rename: Rename | None = None
    access: AccessRules = attrs.field(default=None, converter=_rules)

    def chooses(self, operation_id: str) -> bool:
        """Return True if the view shows the operation, by the patterns ``include`` and ``exclude``."""
        return any(fnmatchcase(operation_id, pattern) for pattern in self.include) and not any(
            fnmatchcase(operation_id, pattern) for pattern in self.exclude
        )

    def shown(self, spec: OperationSpec) -> OperationSpec:
        """Return the spec as the view shows it. Raises `RegistrationError` for an unusable id or requirement."""
        id = spec.id
        if callable(self.rename):
            try:
                id = self.rename(id)
            except Exception as error:  # it is also called when the registry changes, which must not fail
                raise RegistrationError(f'rename of "{id}" raised {type(error).__name__}: {error}') from error
        elif self.rename is not None:
            id = self.rename.get(id, id)
        namespace, dot, name = str(id).partition(".")
        if not dot:
            raise RegistrationError(f'rename: expected "namespace.name" for "{spec.id}", got "{id}"')
        if self.prefix is not None:
            namespace, name = self.prefix, id
        changes: dict[str, Any] = {}
        if id != spec.id or self.prefix is not None:
            changes = {"namespace": namespace, "name": name}
        if (control := self.access.control(spec)) is not None:
            changes["access_control"] = combined_access(spec.access_control, control, spec.id)
        return attrs.evolve(spec, **changes) if changes else spec


def combined_access(first: AccessControl, second: AccessControl, where: str) -> AccessControl:
    """Return the requirements of both. Raises `RegistrationError`, with ``where``, if that is impossible."""
    any_of = [control.required_scopes_any for control in (first, second) if control.required_scopes_any]
    resources = [control for control in (first, second) if control.resource_type is not None]
    if (len(any_of) == 2 and set(any_of[0]) != set(any_of[1])) or len(resources) == 2:
        raise RegistrationError(
            f'access of "{where}": the operation already requires other required_scopes_any, or a resource; '
            "use required_scopes, which can be combined"
        )
    guard = resources[0] if resources else AccessControl()
    return attrs.evolve(
        guard,
        required_scopes=tuple(dict.fromkeys((*first.required_scopes, *second.required_scopes))),
        required_scopes_any=any_of[0] if any_of else (),
    )


class _ViewCatalogue(Catalogue):
    """The entries of another catalogue that a view shows, under the view's ids; it follows every change."""

    def __init__(self, base: Catalogue, selection: Selection) -> None:
        super().__init__(make_index=base.make_index)
        self._base, self._selection = base, selection
        self.base_ids: dict[str, str] = {}
        """The ids in the other catalogue, by the view's ids."""
        self.ids: dict[str, str] = {}
        """The view's ids, by the ids in the other catalogue."""
        self.required: dict[str, AccessControl | None] = {}
        """The requirements that the view adds, by the view's ids."""
        self._left_out: set[str] = set()
        for spec in base.specs():
            self._show(base.entries[spec.id], strict=True)
        follow = weakref.WeakMethod(self._follow)  # weak, so that an unused view can be collected

        def changed(operation_id: str) -> None:
            if (method := follow()) is not None:
                method(operation_id)
            else:
                stop()

        stop = base.watch(changed)

    def _follow(self, base_id: str) -> None:
        entry = self._base.entries.get(base_id)
        if entry is not None:
            self._show(entry)
        else:
            self._left_out.discard(base_id)
            self._hide(base_id)

    def _show(self, entry: Entry, *, strict: bool = False) -> None:
        base_id = entry.spec.id
        if not self._selection.chooses(base_id):
            return
        try:
            spec = self._selection.shown(entry.spec)
            if (taken := self.base_ids.get(spec.id, base_id)) != base_id:
                both = f'"{base_id}" and "{taken}" are both "{spec.id}" in a view'
                raise RegistrationError(f"{both}; exclude or rename one of them")
        except RegistrationError as error:
            if strict:
                raise
            self._hide(base_id)
            if base_id not in self._left_out:
                logger.warning("an operation is left out of a view: %s", error)
                self._left_out.add(base_id)
            return
        self._left_out.discard(base_id)
        if self.ids.get(base_id, spec.id) != spec.id:
            self._hide(base_id)
        self.base_ids[spec.id], self.ids[base_id] = base_id, spec.id
        self.required[spec.id] = self._selection.access.control(entry.spec)
        shown = Entry(spec, entry.handler, entry.blocking, entry.owner, entry.pipeline, entry.operation)
        self.add(shown, replace=True)

    def _hide(self, base_id: str) -> None:
        operation_id = self.ids.pop(base_id, None)
        if operation_id is None:
            return
        del self.base_ids[operation_id], self.required[operation_id]
        self.remove(operation_id)
        for other in sorted(self._left_out):  # its id is free for another operation
            self._follow(other)


class _ViewExecution(Execution):
    """Checks the requirements of the view, then passes a call on to the registry under its id there."""

    def __init__(self, base: Execution, catalogue: _ViewCatalogue) -> None:
        self._base, self._shown = base, catalogue
        self.target, self.id_prefix, self.next_id = base.target, base.id_prefix, base.next_id
        self.observed = True  # `watch` asks the registry

    def id_of(self, operation: Operation[..., Any]) -> str:
        base_id = self._base.id_of(operation)
        if base_id in self._shown.ids:
            return self._shown.ids[base_id]
        # The view shows it under another id, and this id may be that of another operation.
        raise operation_not_found(base_id)

    def new_call(self, context: OperationContext | None) -> OperationContext:
        return self._base.new_call(context)

    def watch(
        self,
        operation_id: str,
        input: Any,
        call: OperationContext,
        called_as: str | None = None,
        is_stream: bool = False,
    ) -> Watch | None:
        base_id = self._shown.base_ids.get(operation_id, operation_id)
        return self._base.watch(base_id, input, call, called_as or operation_id, is_stream)

    async def run(self, operation_id: str, input: Any, call: OperationContext) -> ResponseEnvelope[Any]:
        return await self._base.run(self._admitted(operation_id, input, call), input, call)

    async def stream(
        self,
        operation_id: str,
        input: Any,
        call: OperationContext,
        timeout: float | None,
        *,
        in_pieces: bool = False,
    ) -> Envelopes:
        base_id = self._admitted(operation_id, input, call)
        async with aclosing(self._base.stream(base_id, input, call, timeout, in_pieces=in_pieces)) as items:
            async for item in items:
                yield item

    def _admitted(self, operation_id: str, input: Any, call: OperationContext) -> str:
        base_id = self._shown.base_ids.get(operation_id)
        if base_id is None:
            raise operation_not_found(operation_id)
        control = self._shown.required[operation_id]
        if control is not None and not call.trusted:
            check_access(control, call.identity, input)
        return base_id


class RegistryView(RegistryBase):
    """A read-only part of a registry, with its own ids, that can be used like a registry.

    See `OperationRegistry.view`.
    """

    def __init__(
        self, registry: RegistryBase, catalogue: Catalogue, execution: Execution, selection: Selection
    ) -> None:
        self._registry: Any = registry
        self._catalogue: _ViewCatalogue = _ViewCatalogue(catalogue, selection)
        self._execution = _ViewExecution(execution, self._catalogue)

    def view(self, **options: Any) -> RegistryView:
        """Return a view of this view; for options and errors see `OperationRegistry.view`."""
        return RegistryView(self, self._catalogue, self._execution, Selection(**options))

    def __getattr__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return getattr(self._registry, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def describe(self, operation_id: str) -> OperationSpec | None:
        """Return the complete spec of an operation with the ids of the view; see `OperationRegistry.describe`."""
        base_id = self._catalogue.base_ids.get(operation_id)
        if base_id is not None:
            await self._registry.describe(base_id)
        return self.get_spec(operation_id)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RegistrationError("a view is read-only; change the registry from which it was made")

    load = register = register_handler = register_spec = unregister = use = _refuse

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing, because only the registry itself closes its sources."""

    async def aclose(self) -> None:
        """Do nothing, because only the registry itself closes its sources."""
