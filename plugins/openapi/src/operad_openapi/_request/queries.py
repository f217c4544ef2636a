"""Turn the query of a URL that a server returned into an input, for pagination."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_plus

from operad_openapi._document.document import Json
from operad_openapi._document.parameters import Parameter

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z")
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,3})?\Z")
_MEMBER = re.compile(r"\[([^\[\]]*)\]")
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_COLLECTIONS = {"ssv": "%20", "tsv": "%09", "pipes": "%7C"}

Accepts = Callable[[Any, Any], bool]
Resolve = Callable[[Any], Any]


def raw_pairs(query: str) -> dict[str, list[str]]:
    """Return the values of a query string, keyed by name. The names are decoded, the values are not."""
    found: dict[str, list[str]] = {}
    for pair in query.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            found.setdefault(unquote_plus(name), []).append(value)
    return found


class QueryReader:
    """A reader of an operation's parameters in a query.

    Args:
        parameters: the parameters of the query, keyed by their keys in the input.
        accepts: returns True if a schema accepts a value.
        resolve: returns the schema that a reference points to.
    """

    def __init__(self, parameters: Mapping[str, Parameter], accepts: Accepts, resolve: Resolve) -> None:
        self._keys = {parameter.name: key for key, parameter in parameters.items()}
        self._parameters = parameters
        self._accepts = accepts
        self._resolve = resolve

    def changed(self, input: Mapping[str, Any], before: str, after: str) -> tuple[Json, set[str]]:
        """Return ``input`` changed to produce the query ``after``, and the names in ``after`` without a parameter.

        ``before`` is the query that ``input`` produces. A parameter with the same text in both keeps its value; a
        changed text is converted by the parameter's schema. An optional parameter that ``after`` lacks is removed.
        """
        old, new = raw_pairs(before), raw_pairs(after)
        result = dict(input)
        present: set[str] = set()
        unknown: set[str] = set()
        groups: dict[str, dict[str, list[str]]] = {}
        for name, texts in new.items():
            own = self._owner(name)
            if own is None:
                unknown.add(name)
            else:
                groups.setdefault(own, {})[name] = texts
        for own, written in groups.items():
            key = self._keys[own]
            present.add(key)
            if any(old.get(name) != texts for name, texts in written.items()):
                result[key] = self._value(self._parameters[key], written)
        for key, parameter in self._parameters.items():
            if key not in present and not parameter.required:
                result.pop(key, None)
        return result, unknown

    def _owner(self, name: str) -> str | None:
        """Return the parameter that a name in the query belongs to: ``filter[x]`` belongs to ``filter``."""
        if name in self._keys:
            return name
        base = name.partition("[")[0]
        return base if base in self._keys and name.endswith("]") else None

    def _value(self, parameter: Parameter, written: dict[str, list[str]]) -> Any:
        schema = self._resolve(parameter.schema)
        texts = written.get(parameter.name) or written.get(f"{parameter.name}[]")
        if texts is None:
            return self._object(written, schema)
        if parameter.content_type is not None:
            return _json(unquote_plus(texts[0]))
        if _is(schema, "array"):
            items = schema.get("items", True)
            if len(texts) == 1 and _is_joined(parameter):
                texts = _split(texts[0], parameter)
            return [self._scalar(unquote_plus(text), items) for text in texts]
        return self._scalar(unquote_plus(texts[-1]), schema)

    def _object(self, written: dict[str, list[str]], schema: Any) -> Json:
        """Return the object in pairs such as ``a[b][c]=…`` (``deepObject``)."""
        result: Json = {}
        properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
        for name, texts in written.items():
            first, *more = _MEMBER.findall(name)
            node, member = result, first
            for following in more:
                child = node.setdefault(member, {})
                if not isinstance(child, dict):
                    break
                node, member = child, following
            node[member] = self._scalar(unquote_plus(texts[-1]), True if more else properties.get(first, True))
        return result

    def _scalar(self, text: str, schema: Any) -> Any:
        """Return the value that ``text`` represents: the text itself if the schema allows strings."""
        candidates: list[Any] = [text]
        if _INTEGER.match(text):
            candidates.append(int(text))
        elif _NUMBER.match(text):
            candidates.append(float(text))
        elif text in ("true", "false"):
            candidates.append(text == "true")
        return next((value for value in candidates if self._accepts(schema, value)), text)


def _is(schema: Any, kind: str) -> bool:
    declared = schema.get("type") if isinstance(schema, dict) else None
    return kind == declared or (isinstance(declared, list) and kind in declared)


def _is_joined(parameter: Parameter) -> bool:
    if parameter.collection_format is not None:
        return parameter.collection_format != "multi"
    return parameter.explode is False or parameter.style in _DELIMITERS


def _split(text: str, parameter: Parameter) -> list[str]:
    """Return the items of a joined array, not decoded; the delimiter may be encoded or not."""
    joint = _DELIMITERS.get(parameter.style or "") or _COLLECTIONS.get(parameter.collection_format or "") or "%2C"
    return re.split(f"{re.escape(unquote_plus(joint))}|{joint}|{joint.lower()}", text.replace("+", "%20"))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
