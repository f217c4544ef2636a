"""How the operations of a registry are addressed: paths, methods, query strings."""

from __future__ import annotations

from urllib.parse import quote

from operad import OperationRegistry, OperationSpec
from operad_openapi._serving.queries import QueryForm, query_form

PREFIX = "/operations/"
_MAX_KEPT = 4_096


def path_of(operation_id: str) -> str | None:
    """The path of an operation; ``None`` for an id that no path can hold.

    Clients and proxies take out empty, ``.`` and ``..`` segments (RFC 3986, 5.2.4), also the encoded ones.
    """
    return PREFIX + quote(operation_id, safe="/-._~") if _has_path(operation_id) else None


def id_of(path: str) -> str | None:
    """The id in a decoded path that begins with `PREFIX`; ``None`` if it has none."""
    operation_id = path[len(PREFIX) :]
    return operation_id if _has_path(operation_id) else None


def _has_path(operation_id: str) -> bool:
    return not any(segment in ("", ".", "..") for segment in operation_id.split("/"))


class Forms:
    """The query forms of operations, made when they are first asked for."""

    def __init__(self, registry: OperationRegistry) -> None:
        self._registry = registry
        self._kept: dict[str, tuple[OperationSpec, QueryForm | None]] = {}

    async def query(self, spec: OperationSpec) -> QueryForm | None:
        """How the input of an operation is written as a query string, if it can be."""
        kept = self._kept.get(spec.id)
        if kept is not None and kept[0] is spec:
            return kept[1]
        whole = await self._registry.describe(spec.id) or spec
        schema = whole.input_schema.bundled()
        form = query_form(whole, schema, schema.get("$defs", {}) if isinstance(schema, dict) else {})
        if len(self._kept) >= _MAX_KEPT:  # of operations that are long gone, most of them
            self._kept.clear()
        self._kept[spec.id] = whole, form
        return form

    async def methods(self, spec: OperationSpec) -> tuple[str, ...]:
        """The methods of an operation."""
        return ("POST",) if await self.query(spec) is None else ("GET", "HEAD", "POST")
