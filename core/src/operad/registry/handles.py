"""Operations as objects, for notebooks and prompts: completion, help and calls."""

from __future__ import annotations

import inspect
import keyword
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec
from operad.words import did_you_mean, html_table

_LISTED = 100
"""How many operations a registry shows in a notebook."""
_OWN = frozenset({"context", "timeout", "idempotency_key"})


class Browsable:
    """Interactive use of a registry: ``registry["id"]``, completion, tables in notebooks."""

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        raise NotImplementedError

    def specs(self) -> Sequence[OperationSpec]:
        raise NotImplementedError

    def __getitem__(self, operation_id: str) -> OperationHandle:
        spec = self.get_spec(operation_id)
        if spec is None:
            known = did_you_mean(str(operation_id), (spec.id for spec in self.specs()))
            raise KeyError(f'there is no operation "{operation_id}"{known[:500]}')
        return OperationHandle(self, spec)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids, sorted."""
        return iter([spec.id for spec in self.specs()])

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        specs = self.specs()
        spaces = len({spec.namespace for spec in specs})
        return (
            f"{type(self).__name__}({len(specs)} operation{'s'[: len(specs) != 1]} "
            f"in {spaces} namespace{'s'[: spaces != 1]})"
        )

    def _repr_html_(self) -> str:
        specs = self.specs()
        spaces = Counter(spec.namespace for spec in specs)
        words = ", ".join(f"{name} ({count})" for name, count in sorted(spaces.items()))
        rows = [(spec.id, spec.type, spec.title or _first_line(spec.description)) for spec in specs[:_LISTED]]
        more = "" if len(specs) <= _LISTED else f"<p>… and {len(specs) - _LISTED} more; try search(…)</p>"
        return html_table(("operation", "type", "what it does"), rows, f"{len(specs)} operations: {words}") + more


class OperationHandle:
    """A callable operation of a registry, made by ``registry["namespace.name"]``.

    ``handle({"a": 1})`` or ``handle(a=1)`` is ``registry.execute``, ``handle.subscribe(…)`` is
    ``registry.subscribe``; await them in the same way.
    """

    def __init__(self, registry: Any, spec: OperationSpec) -> None:
        self._registry = registry
        self.spec = spec
        """Its spec."""
        self.__name__ = spec.id
        self.__doc__ = _explained(spec)
        self.__signature__ = _signature(spec)

    @property
    def id(self) -> str:
        """The operation's id."""
        return self.spec.id

    def __call__(
        self,
        input: Any = None,
        /,
        *,
        context: Any = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Any:
        """Call it with an input object or with its fields as keywords; as the registry's ``execute``."""
        return self._registry.execute(
            self.id, self._input(input, fields), context, timeout=timeout, idempotency_key=idempotency_key
        )

    def subscribe(
        self, input: Any = None, /, *, context: Any = None, timeout: float | None = None, **fields: Any
    ) -> Any:
        """Subscribe to it; as the registry's ``subscribe``."""
        return self._registry.subscribe(self.id, self._input(input, fields), context, timeout=timeout)

    def __repr__(self) -> str:
        return f"<operation {self.id} ({self.spec.type})>"

    def _repr_html_(self) -> str:
        return self.spec._repr_html_()

    def _input(self, input: Any, fields: Mapping[str, Any]) -> Any:
        if fields and input is not None:
            raise CallError(
                ErrorCode.VALIDATION_ERROR, f'"{self.id}" got both an input and keywords; give one of them'
            )
        return dict(fields) if fields else input


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _explained(spec: OperationSpec) -> str:
    """Return the documentation for ``help`` and ``?``."""
    lines = [spec.title or spec.id, "", spec.description.strip(), ""]
    fields = spec.fields()
    if fields:
        lines.append("Args:")
        lines += [
            f"    {name}: {kind}{'' if needed else ', optional'}. {text}" for name, kind, needed, text in fields
        ]
    return "\n".join(lines).strip()


def _signature(spec: OperationSpec) -> inspect.Signature:
    """Return the fields of the input as keywords; other fields are passed in the input object."""
    kind = inspect.Parameter.KEYWORD_ONLY
    fields = [
        inspect.Parameter(name, kind, default=inspect.Parameter.empty if needed else None, annotation=what)
        for name, what, needed, _ in spec.fields()
        if name.isidentifier() and not keyword.iskeyword(name) and name not in _OWN
    ]
    return inspect.Signature(
        [inspect.Parameter("input", inspect.Parameter.POSITIONAL_ONLY, default=None), *fields]
    )
