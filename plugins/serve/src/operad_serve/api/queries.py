"""Inputs in query strings: which operations allow them, their declaration in the document, and decoding.

Decoding does not cast. A text becomes a number, a boolean or ``null`` only if the schema allows that type and the
text is exactly its JSON form. Undeclared parameters stay text. The input is validated afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

import attrs

from operad import OperationSpec, OperationType
from operad_serve.problems import Problem

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_ROOT = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "$schema", "title", "description"}
)
_MAX_FIELDS = 1_000

Json = dict[str, Any]


@attrs.frozen
class Field:
    """A query parameter: one property of an input."""

    name: str
    kind: Literal["scalar", "array", "json"]
    schema: Any
    """The published schema of the parameter. References lead to the ``$defs`` of the input."""
    types: frozenset[str] = frozenset()
    """The types of the scalar, or of the array's items."""
    required: bool = False

    def declaration(self) -> Json:
        """Return the parameter as a parameter object of OpenAPI."""
        schema, description = self.schema, None
        if isinstance(schema, dict) and isinstance(schema.get("description"), str):
            description = schema["description"]
        parameter: Json = {"name": self.name, "in": "query", "required": self.required}
        if description:
            parameter["description"] = description
        if self.kind == "json":
            return {**parameter, "content": {"application/json": {"schema": schema}}}
        return {**parameter, "style": "form", "explode": True, "schema": schema}

    def read(self, texts: list[str]) -> Any:
        """Decode the texts of the parameter, in their order.

        Raises `Problem` (400) if the parameter is JSON, and has several texts or a text that is not JSON.
        """
        if self.kind == "array":
            return [_decoded(text, self.types) for text in texts]
        if len(texts) > 1:
            if self.kind == "scalar":  # validation explains why a list is wrong
                return [_decoded(text, self.types) for text in texts]
            raise Problem(400, f'query parameter "{self.name}": expected one value, got {len(texts)}')
        if self.kind == "scalar":
            return _decoded(texts[0], self.types)
        try:
            return json.loads(texts[0], parse_constant=_refused)
        except (ValueError, RecursionError):
            got = texts[0][:50] or "nothing"
            message = f'query parameter "{self.name}": expected JSON text, got {got}; a string needs quotes'
            raise Problem(400, message) from None


@attrs.frozen
class QueryForm:
    """The form of an input as a query string, with a `Field` for each property."""

    fields: Mapping[str, Field]

    def read(self, query: bytes) -> Json:
        """Decode a query string into an input. Raises `Problem` (400) if it cannot be decoded."""
        try:
            pairs = parse_qsl(
                query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
            )
        except ValueError:
            count = query.count(b"&") + 1
            got = f"{count} fields" if count > _MAX_FIELDS else "text in another encoding"
            expected = f"expected percent-encoded UTF-8 with at most {_MAX_FIELDS} fields"
            raise Problem(400, f"query string: {expected}, got {got}") from None
        texts: dict[str, list[str]] = {}
        for name, text in pairs:
            texts.setdefault(name, []).append(text)
        return {name: self._value(name, values) for name, values in texts.items()}

    def _value(self, name: str, values: list[str]) -> Any:
        field = self.fields.get(name)
        if field is not None:
            return field.read(values)
        return values[0] if len(values) == 1 else values


class Root(NamedTuple):
    """The definitions that the references of a schema lead to, and the prefix of such references."""

    definitions: Mapping[str, Any]
    prefix: str


def query_form(
    spec: OperationSpec, schema: Any, definitions: Mapping[str, Any], prefix: str = "#/$defs/"
) -> QueryForm | None:
    """Return the form of an operation's input as a query string; None if the operation has no such form.

    The input must be an object. Its required fields must be scalars or lists of scalars.

    Args:
        spec: the operation. A mutation has no form as a query string: a GET must be safe (RFC 9110, 9.2.1).
        schema: the bundled input schema of the operation.
        definitions: the definitions that the schema refers to.
        prefix: the prefix of references to the definitions.
    """
    root = Root(definitions, prefix)
    schema = resolved(schema, root)
    if spec.type is OperationType.MUTATION or not isinstance(schema, dict) or not schema.keys() <= _ROOT:
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type") != "object" or schema.get("additionalProperties", True) not in (True, False):
        return None
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or not set(required) <= properties.keys()
    ):
        return None
    fields = {name: field_of(name, node, root, name in required) for name, node in properties.items()}
    if any(field.required and field.kind == "json" for field in fields.values()):
        return None
    return QueryForm(fields)


def field_of(name: str, node: Any, root: Root, required: bool) -> Field:
    """Return the query parameter for a property of an input. ``node`` is the schema of the property."""
    types = _types(node, root)
    if types is not None:
        return _scalar(name, node, types, required)
    target = resolved(node, root)
    if isinstance(target, dict) and target.get("type") == "array" and "items" in target:
        items = _types(target["items"], root)
        # If an item may be null, or its text could mean two values, the parameter needs JSON.
        if items is not None and len(items) == 1 and "null" not in items:
            # An exploded form cannot contain an empty array: without an item the parameter is missing.
            schema = {**target, "minItems": max(1, target.get("minItems", 1))} if required else node
            return Field(name, "array", schema, items, required)
    return Field(name, "json", node, frozenset(), required)


def _scalar(name: str, node: Any, types: frozenset[str], required: bool) -> Field:
    if "string" not in types or types == {"string"}:
        return Field(name, "scalar", node, types, required)
    if types == {"string", "null"}:
        # Every text is a string, also `null`. A client omits the parameter to send null.
        return Field(name, "scalar", _without_null(node), frozenset({"string"}), required)
    return Field(name, "json", node, frozenset(), required)


def _without_null(node: Json) -> Json:
    out = {keyword: value for keyword, value in node.items() if keyword != "default" or value is not None}
    if isinstance(out.get("type"), list):
        out["type"] = "string"
    for keyword in ("anyOf", "oneOf"):
        if isinstance(out.get(keyword), list):
            rest = [member for member in out[keyword] if not _is_null(member)]
            if len(rest) == 1 and isinstance(rest[0], dict) and not rest[0].keys() & (out.keys() - {keyword}):
                del out[keyword]
                out.update(rest[0])
            else:
                out[keyword] = rest
    if isinstance(out.get("enum"), list):
        out["enum"] = [value for value in out["enum"] if value is not None]
    return out


def _is_null(node: Any) -> bool:
    return isinstance(node, dict) and (node.get("type") == "null" or node.get("enum") == [None])


def _types(node: Any, root: Root, depth: int = 8) -> frozenset[str] | None:
    """Return the types of a scalar; None if the value can be something else."""
    node = resolved(node, root)
    if not isinstance(node, dict) or depth == 0:
        return None
    for keyword in ("anyOf", "oneOf"):
        if keyword in node:
            members = [_types(member, root, depth - 1) for member in node[keyword]]
            found = [member for member in members if member is not None]
            return frozenset().union(*found) if found and len(found) == len(members) else None
    kind = node.get("type")
    if kind is None and ("enum" in node or "const" in node):
        values = node["enum"] if "enum" in node else [node["const"]]
        kind = [_type_of(value) for value in values]
    kinds = frozenset([kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ())
    return kinds if kinds and kinds <= _SCALARS else None


def _type_of(value: Any) -> str:
    for python, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, python):
            return name
    return "null" if value is None else "object"


def resolved(node: Any, root: Root) -> Any:
    """Return a schema or the target of its ``$ref``; None if the target is missing or has keywords beside it."""
    for _ in range(16):
        if not isinstance(node, dict) or "$ref" not in node:
            return node
        if node.keys() - {"$ref", "description", "title", "default", "deprecated", "examples"}:
            return None
        token = unquote(str(node["$ref"]).removeprefix(root.prefix))
        node = root.definitions.get(token.replace("~1", "/").replace("~0", "~"))
    return None


def _decoded(text: str, types: frozenset[str]) -> Any:
    if "string" in types:
        return text
    if text == "null" and "null" in types:
        return None
    if text in ("true", "false") and "boolean" in types:
        return text == "true"
    if types & {"integer", "number"} and _NUMBER.fullmatch(text):
        value = json.loads(text)
        return value if value - value == 0 else text  # 1e999 is not a JSON value
    return text


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
