"""Operations as objects for notebooks and interactive prompts: completion, help and calls."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from operad.names import Listed, input_of, keyword_names, members_of
from operad.operations import OperationSpec
from operad.words import did_you_mean

_LISTED = 100
"""The number of operations that a registry shows in a notebook."""
_OWN = frozenset({"context", "timeout", "idempotency_key"})


class Browsable(Listed):
    """The base of registries for interactive use: ``registry["id"]``, completion, and tables in notebooks."""

    def __getitem__(self, operation_id: str) -> OperationHandle:
        spec = self.get_spec(operation_id)
        if spec is None:
            known = did_you_mean(str(operation_id), (spec.id for spec in self.specs()))
            raise KeyError(f'unknown operation "{operation_id}"{known[:500]}')
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
        texts = [spec.title or spec.description.strip().partition("\n")[0] for spec in specs[:_LISTED]]
        rows = [(spec.id, spec.type, text) for spec, text in zip(specs, texts, strict=False)]
        more = "" if len(specs) <= _LISTED else f"<p>… and {len(specs) - _LISTED} more; try search(…)</p>"
        return _table(("operation", "type", "what it does"), rows, f"{len(specs)} operations: {words}") + more


class OperationHandle:
    """An operation of a registry as a callable; ``registry["id"]`` returns it, or raises `KeyError`.

    ``handle({"a": 1})`` and ``handle(a=1)`` are the same as ``registry.execute(id, {"a": 1})``, and
    ``handle.subscribe(…)`` is the same as ``registry.subscribe(id, …)``.
    """

    def __init__(self, registry: Any, spec: OperationSpec) -> None:
        self._registry = registry
        self.spec = spec
        """The spec of the operation."""
        self.id = spec.id
        self.__name__ = spec.id
        self.__doc__ = _explained(spec)
        self.__signature__ = _signature(spec)

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
        """Call the operation with an input object or its fields as keywords; see `OperationRegistry.execute`."""
        return self._registry.execute(
            self.id,
            input_of(self._registry, self.id, input, fields),
            context,
            timeout=timeout,
            idempotency_key=idempotency_key,
        )

    def subscribe(
        self, input: Any = None, /, *, context: Any = None, timeout: float | None = None, **fields: Any
    ) -> Any:
        """Subscribe with an input object or its fields as keywords; see `OperationRegistry.subscribe`."""
        return self._registry.subscribe(
            self.id, input_of(self._registry, self.id, input, fields), context, timeout=timeout
        )

    def __repr__(self) -> str:
        return f"<operation {self.id} ({self.spec.type})>"

    def _repr_html_(self) -> str:
        spec = self.spec
        about = f"<p>{_text(spec.description, 2_000)}</p>" if spec.description else ""
        rows = [(name, kind, "yes" if needed else "", text) for name, kind, needed, text in _fields(spec)]
        table = _table(("field", "type", "required", "what it is"), rows) if rows else ""
        return f"<h4>{_text(spec.id)} <small>({_text(spec.type)})</small></h4>{about}{table}"


def _explained(spec: OperationSpec) -> str:
    """Return the documentation for ``help`` and ``?``."""
    lines = [spec.title or spec.id, "", spec.description.strip(), ""]
    fields = [
        f"    {name}: {kind}{'' if needed else ', optional'}. {text}" for name, kind, needed, text in _fields(spec)
    ]
    return "\n".join([*lines, "Args:", *fields] if fields else lines).strip()


def _signature(spec: OperationSpec) -> inspect.Signature:
    """Return a signature with the fields of the input as keywords, but without those that every call takes."""
    fields = {name: (what, needed) for name, what, needed, _ in _fields(spec)}
    parameters = [inspect.Parameter("input", inspect.Parameter.POSITIONAL_ONLY, default=None)]
    for keyword, name in keyword_names(fields).items():
        if keyword not in _OWN:
            what, needed = fields[name]
            default = inspect.Parameter.empty if needed else None
            parameters.append(
                inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=what)
            )
    return inspect.Signature(parameters)


def _fields(spec: OperationSpec) -> list[tuple[str, str, bool, str]]:
    """Return the fields of an input: name, type, whether it is required, description."""
    members, required = members_of(spec)
    return [(name, _type_of(field), name in required, _description_of(field)) for name, field in members.items()]


def _type_of(field: Any) -> str:
    if not isinstance(field, Mapping):
        return "any"
    kind = field.get("type") or str(field.get("$ref", "any")).rpartition("/")[2]
    return kind if isinstance(kind, str) else " | ".join(map(str, kind))


def _description_of(field: Any) -> str:
    text = field.get("description") if isinstance(field, Mapping) else None
    return text if isinstance(text, str) else ""


def _text(value: Any, limit: int = 300) -> str:
    """Return text for HTML, bounded and escaped: it may come from documents and servers."""
    from html import escape  # only if a notebook shows something

    text = str(value)
    return escape(text if len(text) <= limit else text[:limit] + "…")


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    parts = ["<table>", f"<caption>{_text(caption)}</caption>" if caption else "", "<thead><tr>"]
    parts += [f'<th scope="col" style="text-align:left">{_text(name)}</th>' for name in head]
    parts.append("</tr></thead><tbody>")
    for row in rows:
        cells = "".join(f'<td style="text-align:left">{_text(cell)}</td>' for cell in row)
        parts.append(f"<tr>{cells}</tr>")
    return "".join(parts) + "</tbody></table>"
