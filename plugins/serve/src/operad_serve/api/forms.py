"""How the operations of a registry are addressed: paths, methods, query strings."""

from __future__ import annotations

from urllib.parse import quote

import attrs

from operad import CallError, OperationRegistry, OperationSpec, Schema
from operad_serve.api.formats import Formats
from operad_serve.api.queries import QueryForm, query_form

PREFIX = "/operations/"
_MAX_KEPT = 4_096
_NO_SEGMENTS = ("", ".", "..")


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
    if "/" not in operation_id:  # most have none
        return operation_id not in _NO_SEGMENTS
    return not any(segment in _NO_SEGMENTS for segment in operation_id.split("/"))


@attrs.frozen(eq=False)
class Form:
    """How an operation is called over HTTP."""

    spec: OperationSpec
    query: QueryForm | None
    """How its input is written as a query string, if it can be."""
    schema: Schema
    """What its input has to be."""
    formats: Formats | None
    """What its input has to be besides, and the registry does not check."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the operation."""
        return ("POST",) if self.query is None else ("GET", "HEAD", "POST")


class Forms:
    """The forms of operations, made when they are first asked for.

    Args:
        registry: whose operations.
        formats: whether formats are checked.
    """

    def __init__(self, registry: OperationRegistry, *, formats: bool) -> None:
        self._registry = registry
        self._formats = formats
        self._kept: dict[str, tuple[OperationSpec, Form]] = {}

    def known(self, spec: OperationSpec) -> Form | None:
        """The form, if it was asked for before."""
        kept = self._kept.get(spec.id)
        return kept[1] if kept is not None and kept[0] is spec else None

    async def form(self, spec: OperationSpec) -> Form:
        """How an operation is called."""
        known = self.known(spec)
        if known is not None:
            return known
        try:
            whole = await self._registry.describe(spec.id) or spec
        except CallError:  # whoever serves it is not there: the call itself says so
            return Form(spec, None, spec.input_schema, None)
        schema = whole.input_schema.bundled()
        query = query_form(whole, schema, schema.get("$defs", {}) if isinstance(schema, dict) else {})
        made = Form(whole, query, whole.input_schema, Formats.of(schema) if self._formats else None)
        if len(self._kept) >= _MAX_KEPT:  # of operations that are long gone, most of them
            self._kept.clear()
        self._kept[spec.id] = spec, made
        return made
