"""Follow the links of a document from a response to another operation (OpenAPI 3.1.1, "Link Object")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from operad import CallError
from operad_openapi._document.document import Json, PointerError, pointer_tokens
from operad_openapi._planned import PlannedOperation
from operad_openapi._request.inputs import MISSING, Inputs
from operad_openapi.envelopes import HTTPResponseMeta

_EMBEDDED = re.compile(r"\{(\$[^{}]+)\}")
_PLACES = ("path", "query", "header", "cookie")


def links_of_response(
    operation: PlannedOperation, input: Mapping[str, Any], data: Any, meta: HTTPResponseMeta
) -> dict[str, Json]:
    """Return the targets of a response's links, ``{"operation": id, "input": {...}}``, keyed by link name.

    A link is left out if its operation does not exist, or if one of its parameters has no value. For example, the
    last page has no link to a next one.
    """
    values = _Values(operation.plan.inputs, input, data, meta)
    found: dict[str, Json] = {}
    for name, link in (operation.links or {}).items():
        target = _target(operation, link)
        if target is None:
            continue
        operation_id, linked = target
        try:
            made = _input(linked.plan.inputs, link, values)
        except (CallError, PointerError):
            continue  # the target cannot be called, or the link is malformed
        if made is not None:
            found[name] = {"operation": operation_id, "input": made}
    return found


def _target(operation: PlannedOperation, link: Json) -> tuple[str, PlannedOperation] | None:
    wanted, reference = link.get("operationId"), unquote(str(link.get("operationRef", "")))
    for name, other in operation.source.operations.items():
        is_meant = other.raw.node.get("operationId") == wanted if wanted else other.raw.pointer == reference
        if is_meant and not other.is_twin:
            return f"{operation.source.config.namespace}.{name}", other
    return None


def _input(inputs: Inputs, link: Json, values: _Values) -> Json | None:
    """Return the input that a link makes; ``None`` if a parameter has no value."""
    made: Json = {}
    parameters = link.get("parameters")
    for key, expression in parameters.items() if isinstance(parameters, Mapping) else ():
        place, _, name = str(key).partition(".")
        if place not in _PLACES or not name:
            place, name = "", str(key)
        value = values.of(expression)
        for slot in inputs.slots:
            if slot.name == name and place in ("", slot.location):
                if value is MISSING:
                    return None
                made[slot.key] = value
                break
    body = values.of(link["requestBody"]) if "requestBody" in link else MISSING
    if body is not MISSING and inputs.body_key is not None:
        made[inputs.body_key] = body
    elif isinstance(body, Mapping) and inputs.body_fields is not None:
        made |= {key: value for key, value in body.items() if key in inputs.body_fields}
    return made


class _Values:
    """The values of runtime expressions, for one request and its response."""

    def __init__(self, inputs: Inputs, input: Mapping[str, Any], data: Any, meta: HTTPResponseMeta) -> None:
        self._inputs = inputs
        self._input = input
        self._data = data
        self._meta = meta

    def of(self, expression: Any) -> Any:
        """Return a constant, or the value of an expression; `MISSING` if the request or response lacks it."""
        if not isinstance(expression, str):
            return expression
        if expression.startswith("$"):
            return self._value(expression)
        parts = _EMBEDDED.split(expression)
        parts[1::2] = [self._value(part) for part in parts[1::2]]
        return MISSING if any(part is MISSING for part in parts) else "".join(map(str, parts))

    def _value(self, expression: str) -> Any:
        simple = {"$url": self._meta.url, "$method": self._meta.method, "$statusCode": self._meta.status_code}
        if expression in simple:
            return simple[expression]
        source, _, rest = expression.partition(".")
        place, _, name = rest.partition(".")
        if source == "$response" and place == "header":
            return self._meta.headers.get(name.lower(), MISSING)
        if rest.startswith("body"):
            body = self._data if source == "$response" else self._inputs.body(self._input)
            return _at(body, rest.partition("#")[2])
        for slot in self._inputs.slots:
            if source == "$request" and slot.location == place and slot.name == name:
                return self._input.get(slot.key, MISSING)
        return MISSING


def _at(value: Any, pointer: str) -> Any:
    """Return the target of a JSON pointer; `MISSING` if it does not exist or is null."""
    for token in pointer_tokens(pointer):
        if isinstance(value, Mapping) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isdecimal() and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return MISSING if value is None else value
