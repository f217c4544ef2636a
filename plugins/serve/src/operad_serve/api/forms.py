"""The paths, methods and query strings of operations."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import attrs

from operad import CallError, OperationRegistry, OperationSpec, Schema, from_schema
from operad_schema.formats import CHECKED
from operad_serve.api.queries import QueryForm, query_form

PREFIX = "/operations/"
_MAX_KEPT = 4_096
_NO_SEGMENTS = ("", ".", "..")


def path_of(operation_id: str) -> str | None:
    """Return the path of an operation; None for an id that no path can contain.

    Clients and proxies remove empty, ``.`` and ``..`` segments (RFC 3986, 5.2.4), also if they are encoded.
    """
    return PREFIX + quote(operation_id, safe="/-._~") if _has_path(operation_id) else None


def id_of(path: str) -> str | None:
    """Return the id in a decoded path below `PREFIX`; None if it has an empty, ``.`` or ``..`` segment."""
    operation_id = path[len(PREFIX) :]
    return operation_id if _has_path(operation_id) else None


def _has_path(operation_id: str) -> bool:
    if "/" not in operation_id:  # most have none
        return operation_id not in _NO_SEGMENTS
    return not any(segment in _NO_SEGMENTS for segment in operation_id.split("/"))


@attrs.frozen(eq=False)
class Form:
    """The form of an operation's calls over HTTP: its methods, its query string and its schemas."""

    spec: OperationSpec
    query: QueryForm | None
    """The input as a query string; None if the input does not fit into one."""
    schema: Schema
    """The schema of the input."""
    bundled: Any
    """The same schema as JSON, with its definitions; None if it is unknown."""
    strict: Schema | None
    """The same schema with its formats checked, which the registry does not do; None if no format is checked."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods that call the operation."""
        return ("POST",) if self.query is None else ("GET", "HEAD", "POST")


class Forms:
    """The forms of a registry's operations. Each is made when it is first used, and kept.

    Args:
        registry: the registry of the operations.
        formats: whether to check the formats in input schemas.
    """

    def __init__(self, registry: OperationRegistry, *, formats: bool) -> None:
        self._registry = registry
        self._formats = formats
        self._kept: dict[str, tuple[OperationSpec, Form]] = {}

    def known(self, spec: OperationSpec) -> Form | None:
        """Return the form of an operation if it was made before, else None."""
        kept = self._kept.get(spec.id)
        return kept[1] if kept is not None and kept[0] is spec else None

    async def form(self, spec: OperationSpec) -> Form:
        """Return the form of an operation. If the peer that serves it is gone, the form has no query string."""
        known = self.known(spec)
        if known is not None:
            return known
        try:
            whole = await self._registry.describe(spec.id) or spec
        except CallError:  # the peer that serves it is gone: the call will report that
            return Form(spec, None, spec.input_schema, None, None)
        schema = whole.input_schema.bundled()
        query = query_form(whole, schema, schema.get("$defs", {}) if isinstance(schema, dict) else {})
        strict = None
        if self._formats and _has_formats(schema):
            strict = from_schema(schema, formats=True, limits=whole.input_schema.origin.limits)
        made = Form(whole, query, whole.input_schema, schema, strict)
        if len(self._kept) >= _MAX_KEPT:  # most belong to operations that were removed
            self._kept.clear()
        self._kept[spec.id] = spec, made
        return made


def _has_formats(node: Any) -> bool:
    """Return True if a schema may have a format that can be checked."""
    if isinstance(node, dict):
        name = node.get("format")
        return (isinstance(name, str) and name in CHECKED) or any(map(_has_formats, node.values()))
    return isinstance(node, list) and any(map(_has_formats, node))
