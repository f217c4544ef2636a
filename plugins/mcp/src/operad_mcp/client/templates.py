"""URI templates (RFC 6570): which variables one has, and its expansion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import attrs

from operad import CallError, ErrorCode

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_RESERVED = ":/?#[]@!$&'()*+,;="
# operator: what comes first, what comes between, whether names are written, what an empty value is written as
_OPERATORS = {
    "": ("", ",", False, ""),
    "+": ("", ",", False, ""),
    "#": ("#", ",", False, ""),
    ".": (".", ".", False, ""),
    "/": ("/", "/", False, ""),
    ";": (";", ";", True, ""),
    "?": ("?", "&", True, "="),
    "&": ("&", "&", True, "="),
}
_OPTIONAL = frozenset("?&")


@attrs.frozen
class _Variable:
    name: str
    explode: bool
    length: int | None


def _parse(expression: str) -> tuple[str, list[_Variable]]:
    operator = expression[0] if expression[:1] in _OPERATORS and expression[:1] else ""
    found = []
    for part in expression[len(operator) :].split(","):
        match = re.fullmatch(r"\s*([^\s:*{}]+?)(\*|:(\d{1,4}))?\s*", part)
        if match is None:
            raise ValueError(f"URI template: {{{expression}}} is not understood")
        found.append(_Variable(match[1], match[2] == "*", int(match[3]) if match[3] else None))
    return operator, found


def variables(template: str) -> dict[str, bool]:
    """The variables of a template, in order, and whether each is required. Raises `ValueError`.

    What stands in a query (``{?…}``, ``{&…}``) may be left out.
    """
    names: dict[str, bool] = {}
    for match in _EXPRESSION.finditer(template):
        operator, found = _parse(match[1])
        for variable in found:
            names[variable.name] = names.get(variable.name, False) or operator not in _OPTIONAL
    return names


def expand(template: str, values: Mapping[str, Any]) -> str:
    """The URI. A value is encoded, so that it stays within its place.

    Raises:
        CallError: ``VALIDATION_ERROR`` for a path segment ``.`` or ``..``, which would leave its place.
    """

    def replace(match: re.Match[str]) -> str:
        operator, found = _parse(match[1])
        first, between, named, _ = _OPERATORS[operator]
        parts = [part for variable in found for part in _parts(variable, operator, named, values)]
        return first + between.join(parts) if parts else ""

    return _EXPRESSION.sub(replace, template)


def _parts(variable: _Variable, operator: str, named: bool, values: Mapping[str, Any]) -> Iterator[str]:
    value = values.get(variable.name)
    if value is None or value == []:
        return
    if not isinstance(value, list):
        text = str(value)[: variable.length]
        yield _named(variable.name, _encode(text, operator), operator, named)
    elif variable.explode:
        for item in value:
            yield _named(variable.name, _encode(str(item), operator), operator, named)
    else:
        yield _named(variable.name, ",".join(_encode(str(item), operator) for item in value), operator, named)


def _named(name: str, text: str, operator: str, named: bool) -> str:
    if not named:
        return text
    return f"{name}={text}" if text else name + _OPERATORS[operator][3]


def _encode(text: str, operator: str) -> str:
    if operator in ("+", "#"):
        if any(segment in (".", "..") for segment in text.split("/")):
            raise _leaves(text)
        return quote(text, safe=_RESERVED + "%")
    if text in (".", ".."):
        raise _leaves(text)
    return quote(text, safe="")


def _leaves(text: str) -> CallError:
    message = f"the value {text!r} has a segment . or .., which would leave its place in the URI"
    return CallError(ErrorCode.VALIDATION_ERROR, message, {"errors": [{"path": "$", "message": message}]})
