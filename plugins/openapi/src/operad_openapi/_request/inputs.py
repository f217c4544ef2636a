"""The input of an operation: its parameters and the fields of its body, merged into one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from operad_openapi._document.document import Json, PointerError
from operad_openapi._document.mediatypes import essence
from operad_openapi._document.parameters import Parameter
from operad_openapi._document.schemas import SchemaView
from operad_openapi._request.bodies import BodyPlan
from operad_openapi._request.files import FILE_SCHEMA, is_binary, without_null
from operad_openapi._request.styles import compile_parameter
from operad_openapi._request.text import Encoder, SerializationError

_BODY_KEYS = ("body", "requestBody", "_body")
_ANNOTATIONS = frozenset(
    {"title", "description", "example", "examples", "default", "deprecated", "externalDocs", "xml", "$comment"}
)
_MERGEABLE = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "allOf"}
_MERGE_PATCH = "application/merge-patch+json"
_MAX_COMPOSED = 100
"""The maximum number of schemas of one body whose fields are merged with the parameters, or searched for files."""
MISSING: Any = object()
_EXTRAS: Json = {
    "query": {"type": "object", "description": "Parameters of the query that the document does not name."},
    "body": {"type": "object", "description": "Fields of the body that the document does not name."},
    "headers": {
        "type": "object",
        "description": "Headers that the document does not name.",
        "additionalProperties": {"type": "string"},
    },
}


class Slot(NamedTuple):
    """A parameter's place in the request, the key of the input that holds it, and its encoder."""

    key: str
    name: str
    location: str
    encode: Encoder
    is_required: bool
    fallback: str | None = None
    """The configured value, encoded, for calls without a value; ``None`` if it is not configured."""


@attrs.frozen(eq=False, repr=False)
class Inputs:
    """The schema of an operation's input, and the place of each of its fields in the request."""

    schema: Json
    """The JSON Schema of the input; references are resolved in the root of the view."""
    slots: tuple[Slot, ...]
    body_fields: frozenset[str] | None = None
    """The keys that are fields of the body; ``None`` if the body is not merged with the parameters."""
    body_key: str | None = None
    """The key for the whole body; ``None`` if the body is merged or missing."""
    keys: frozenset[str] = frozenset()
    extras: Mapping[str, str] = attrs.field(factory=dict)
    """``query``, ``body``, ``headers`` -> the key of the input for values that the document does not declare."""
    query: Mapping[str, Parameter] = attrs.field(factory=dict)
    """Key of the input -> parameter of the query."""

    def body(self, input: Mapping[str, Any]) -> Any:
        """Return the value of the body in an input, or `MISSING` if the input does not have it."""
        if self.body_key is not None:
            return input.get(self.body_key, MISSING)
        if self.body_fields is None:
            return MISSING
        return {key: value for key, value in input.items() if key in self.body_fields} or MISSING

    def added(self, kind: str, input: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the undeclared values that an input adds to ``query``, ``body`` or ``headers``, keyed by name.

        Raises `SerializationError` if the values are not an object.
        """
        key = self.extras.get(kind)
        value = None if key is None else input.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise SerializationError(f"{key}: expected an object, got {type(value).__name__}")
        return value


@attrs.frozen(eq=False, repr=False)
class Configured:
    """The configured values of parameters."""

    values: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """``path``, ``query``, ``header``, ``cookie`` -> name -> value; names of headers are in lower case."""
    extras: Sequence[str] = ()
    """The parts to which inputs may add undeclared values: ``query``, ``body``, ``headers``."""

    def fallback(self, parameter: Parameter, encode: Encoder) -> str | None:
        """Return the configured value of a parameter, encoded; ``None`` if it is not set.

        Raises `SerializationError` if the value cannot be encoded.
        """
        name = parameter.name.lower() if parameter.location == "header" else parameter.name
        value = self.values.get(parameter.location, {}).get(name)
        return None if value is None else encode(value)


def plan_inputs(
    parameters: list[Parameter], body: BodyPlan | None, view: SchemaView, configured: Configured
) -> Inputs:
    """Return the parameters and the body of an operation, merged into one object.

    If a parameter has the name of a field of the body or of another parameter, its location is appended:
    ``name__path``, ``name__query``, ``name__header``, ``name__cookie``. Fields of the body keep their names. If
    they cannot be merged, the input has the whole body under one key: ``body``, or ``requestBody`` or ``_body`` if
    that name is taken.

    Raises:
        SerializationError: a parameter has no valid name, or its configured value cannot be sent.
    """
    fields = None if body is None else _merged_fields(body, view)
    properties: Json = {}
    required: list[str] = []
    body_fields = body_key = None
    if fields is not None:
        properties.update(fields[0])
        required += fields[1]
        body_fields = frozenset(fields[0])
    names = Counter(parameter.name for parameter in parameters)
    taken = set(properties) | set(names)
    if body is not None and fields is None:
        body_key = next((key for key in _BODY_KEYS if key not in taken), None) or _free("_body", taken)
        whole = body.input_schema(view)
        if body.is_form:
            whole = _with_files(whole, view, iter(range(_MAX_COMPOSED)))
        properties[body_key] = _described(whole, body.description, view)
        if body.required:
            required.append(body_key)
    slots = []
    query = {}
    for parameter in parameters:
        key = parameter.name
        if key in properties or names[key] > 1:
            key = _free(f"{key}__{parameter.location}", taken)
            taken.add(key)
        properties[key] = _parameter_schema(parameter, view)
        encode = compile_parameter(parameter)
        fallback = configured.fallback(parameter, encode)
        if parameter.required and fallback is None:
            required.append(key)
        if parameter.location == "query":
            query[key] = parameter
        slots.append(Slot(key, parameter.name, parameter.location, encode, parameter.required, fallback))
    extras = {}
    for kind in configured.extras:
        extras[kind] = key = _free(f"extra_{kind}", set(properties))
        properties[key] = _EXTRAS[kind]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return Inputs(schema, tuple(slots), body_fields, body_key, frozenset(properties), extras, query)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _parameter_schema(parameter: Parameter, view: SchemaView) -> Any:
    schema = _described(view.schema(parameter.schema), parameter.description, view)
    if parameter.deprecated and isinstance(schema, dict) and "$ref" not in schema:
        schema = {**schema, "deprecated": True}
    return schema


def _described(schema: Any, description: str, view: SchemaView) -> Any:
    if not description:
        return schema
    if schema is True:
        return {"description": description}
    if not isinstance(schema, dict) or "description" in schema:
        return schema
    if "$ref" in schema:
        return {"allOf": [schema], "description": description}
    return {**schema, "description": description}


def _merged_fields(body: BodyPlan, view: SchemaView) -> tuple[Json, list[str]] | None:
    if not body.is_mergeable:
        return None
    try:
        found = _fields(body.schema, view, iter(range(_MAX_COMPOSED)))
    except PointerError:
        return None
    if found is None or not found[0]:
        return None
    properties, required = found
    # An optional body with required fields: an absent body is legal, an incomplete one is not.
    if required and not body.required:
        return None
    if body.is_form:
        properties = {name: _form_field(schema, view) for name, schema in properties.items()}
    if essence(body.media_type) == _MERGE_PATCH:
        properties = {name: node if name in required else _or_null(node) for name, node in properties.items()}
    for name in required:
        properties.setdefault(name, True)  # required, without a schema
    return properties, required


def _or_null(schema: Any) -> Any:
    """Return a schema that also allows null, which removes the field (RFC 7396)."""
    return {"anyOf": [schema, {"enum": [None]}]}


def _with_files(schema: Any, view: SchemaView, left: Iterator[int]) -> Any:
    """Return a form's schema with `FILE_SCHEMA` for binary fields; return ``schema`` itself if it has none.

    ``left`` has an element for each schema that may still be read.
    """
    if next(left, None) is None:
        return schema
    try:
        node = view.resolve(schema)
    except PointerError:
        return schema
    if not isinstance(node, dict):
        return schema
    changed: Json = {}
    if isinstance(fields := node.get("properties"), dict):
        changed["properties"] = {name: _form_field(field, view) for name, field in fields.items()}
    for word in ("allOf", "anyOf", "oneOf"):
        if isinstance(members := node.get(word), list):
            changed[word] = [_with_files(member, view, left) for member in members]
    return {**node, **changed} if any(new != node[word] for word, new in changed.items()) else schema


def _form_field(schema: Any, view: SchemaView) -> Any:
    try:
        target = without_null(schema, view)
    except PointerError:
        return schema
    if is_binary(target):
        return _described(FILE_SCHEMA, target.get("description", ""), view)
    if isinstance(target, dict) and target.get("type") == "array":
        try:
            items = view.resolve(target.get("items"))
        except PointerError:
            return schema
        if is_binary(items):
            return {**target, "items": FILE_SCHEMA}
    return schema


def _fields(schema: Any, view: SchemaView, left: Iterator[int]) -> tuple[Json, list[str]] | None:
    """Return the properties and required names of a plain object, or ``None`` if the schema is anything else.

    ``left`` has an element for each schema that may still be read.
    """
    if next(left, None) is None or not isinstance(schema, dict):
        return None
    if "$ref" in schema and any(key not in _ANNOTATIONS and key != "$ref" for key in schema):
        return None
    node = view.resolve(schema)
    if not isinstance(node, dict):
        return None
    if any(key not in _MERGEABLE and not str(key).startswith("x-") for key in node):
        return None
    if node.get("type", "object") != "object" or node.get("additionalProperties", False) is not False:
        return None
    own = node.get("properties", {})
    required = node.get("required", [])
    if not isinstance(own, dict) or not isinstance(required, list):
        return None
    properties, names = dict(own), [name for name in required if isinstance(name, str)]
    members = node.get("allOf", [])
    for member in members if isinstance(members, list) else ():
        found = _fields(member, view, left)
        if found is None:
            return None
        for name, value in found[0].items():
            if name in properties and properties[name] != value:
                return None
            properties[name] = value
        names += [name for name in found[1] if name not in names]
    return properties, names
