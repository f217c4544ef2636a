"""URI templates (RFC 6570): the variables of one, and its expansion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uritemplate import URITemplate

from operad import CallError, ErrorCode


def variables(template: str) -> dict[str, bool]:
    """Return the variables of a template, in order, and whether each is required. Raises `ValueError`.

    The variables of a query (``{?…}``, ``{&…}``) are optional.
    """
    names: dict[str, bool] = {}
    for expression in URITemplate(template).variables:
        for name in expression.variable_names:
            names[name] = names.get(name, False) or expression.operator.value not in ("?", "&")
    if "{}" in template or "" in names:
        raise ValueError(f"URI template: {template} is not understood")
    return names


def expand(template: str, values: Mapping[str, Any]) -> str:
    """Return the URI. A value is encoded, so that it stays within its place.

    Raises:
        CallError: ``VALIDATION_ERROR`` for a path segment ``.`` or ``..``, which would leave its place.
    """
    parsed = URITemplate(template)
    texts = {name: list(map(str, one)) if isinstance(one, list) else str(one) for name, one in values.items()}
    for expression in parsed.variables:
        for name, modifiers in expression.variables:
            found = texts.get(name, [])
            for text in found if isinstance(found, list) else [found[: modifiers["prefix"]]]:
                segments = text.split("/") if expression.operator.value in ("+", "#") else [text]
                if "." in segments or ".." in segments:
                    message = f"the value {text!r} has a segment . or .., which would leave its place in the URI"
                    details = {"errors": [{"path": "$", "message": message}]}
                    raise CallError(ErrorCode.VALIDATION_ERROR, message, details)
    return parsed.expand({name: text for name, text in texts.items() if text != []})
