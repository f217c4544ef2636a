"""Schemas of a document in the forms that apply to requests and to responses, made when they are first used.

Schemas of requests do not have ``readOnly`` properties, and schemas of responses do not have ``writeOnly`` ones
(OpenAPI 3.0.4, "Schema Object"); ``required`` does not name such properties either.

Servers accept more inputs than their documents state, so schemas of requests are less strict. A ``oneOf`` becomes
an ``anyOf``, because many documents use it for alternatives that overlap, such as integer and number. The value of
a discriminator still selects the alternative, but an input may omit it. Members of the ``enum`` of a string become
text, because YAML reads an unquoted ``true`` as a boolean. If a member of an ``allOf`` has
``additionalProperties: false`` and other members declare more properties, no value would be valid, so the keyword
is dropped. Such a member is called open.

A `SchemaView` has a root of its own, into which changed schemas are put when a reference first leads to them.
Unchanged schemas are the document's own objects, not copies. If no schema can change, the root is the document's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from operad_openapi._document.document import Document, Json, PointerError, pointer_tokens
from operad_openapi._document.kinds import heirs, is_base, mapped_kinds, pointer, tags_of_2_0

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")  # items: a list in draft 4, and in some 2.0 documents
_SINGLE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "contentSchema",
)
_CHANGING = frozenset({*_MAPS, *_LISTS, *_SINGLE, "$ref", "discriminator", "required", "enum", "x-nullable"})
"""A schema without any of these keywords is not changed."""
_MAX_DEPTH = 200
_MAX_COMPOSED = 100
"""The maximum number of schemas that are visited to find out what a schema is composed of."""
_UNITS = {"components": 3, "definitions": 2}
_OPEN = "x-operad-open"
"""The member of the root for schemas that are open as members of an ``allOf``."""


class SchemaView:
    """The schemas of a document as they apply to requests, or to responses.

    Properties that do not apply are hidden: ``readOnly`` ones in requests, ``writeOnly`` ones in responses.

    Args:
        document: the document.
        is_input: True for requests, False for responses.
    """

    __slots__ = (
        "_casts",
        "_document",
        "_done",
        "_hidden",
        "_identity",
        "_is_input",
        "_numbers",
        "_opened",
        "_swagger",
        "root",
    )

    def __init__(self, document: Document, *, is_input: bool) -> None:
        self._document = document
        self._is_input = is_input
        self._hidden = "readOnly" if is_input else "writeOnly"
        self._swagger = document.version == "2.0"
        self._casts = not is_input
        self._identity = not (is_input or self._swagger or document.may_use(self._hidden))
        self._done: set[str] = set()
        self._numbers: dict[str, int] = {}
        """Reference to a schema that is open as a member of an ``allOf`` -> its number."""
        self._opened: dict[str, str] = {}
        """Reference to an open schema in `root` -> reference to the document's own schema."""
        self.root: Json = document.root if self._identity else {}
        """The object in which references of the view's schemas are resolved."""

    def schema(self, node: Any, *, is_open: bool = False) -> Any:
        """Return the schema ``node`` as it applies to requests or to responses; its references lead into `root`.

        If ``is_open`` is True, the result allows properties that it does not declare.
        """
        if self._identity:
            return node
        pending: list[str] = []
        result = self._transform(node, frozenset(), pending, 0, is_open=is_open)
        while pending:
            reference = pending.pop()
            if reference not in self._done:
                self._done.add(reference)
                self._place(reference, pending)
        return result

    def resolve(self, node: Any) -> Any:
        """Return ``node``, or the final target of its reference as a schema of this view.

        Raises `PointerError` if a reference has no target, or references lead in a circle.
        """
        for _ in range(64):
            if not isinstance(node, dict) or not isinstance(reference := node.get("$ref"), str):
                return node
            target = self._document.lookup(self._opened.get(reference, reference))
            node = target if self._identity else self.schema(target, is_open=reference in self._opened)
        raise PointerError(f'reference "{reference:.200}" leads in a circle')

    def _place(self, reference: str, pending: list[str]) -> None:
        """Put the schema that ``reference`` points to into `root`, at the same place."""
        try:
            tokens = pointer_tokens(reference[1:])
            target = self._document.lookup(self._opened.get(reference, reference))
        except PointerError:
            return  # a broken reference stays; it is reported when the schema is compiled
        if not tokens:
            return
        unit = _UNITS.get(tokens[0])
        if unit is not None and unit < len(tokens):
            # A pointer into a component: put the whole component in place, or parts of it would differ.
            tokens = tokens[:unit]
            target = self._document.root
            for token in tokens:
                target = target[token]
        node = self.root
        for token in tokens[:-1]:
            node = node.setdefault(token, {})
            if not isinstance(node, dict):
                return  # an ancestor is in place already
        if tokens[-1] not in node or not self._is_whole(tokens):
            is_open = reference in self._opened
            node[tokens[-1]] = self._transform(target, frozenset(), pending, 0, is_open=is_open)
            self._done.add(_whole(tokens))
            if self._casts and isinstance(target, dict) and is_base(target):
                # No reference leads to the kinds of a base, and results are cast by them.
                pending += heirs(self._document, pointer(tokens))
                if self._swagger and isinstance(target["discriminator"], str):
                    node[tokens[-1]]["discriminator"]["mapping"] = tags_of_2_0(self._document, pointer(tokens))

    def _is_whole(self, tokens: list[str]) -> bool:
        return _whole(tokens) in self._done

    def _transform(
        self, node: Any, not_required: frozenset[str], pending: list[str], depth: int, *, is_open: bool = False
    ) -> Any:
        """Return ``node``, or a changed copy of it, and add the references in it to ``pending``.

        If ``is_open`` is True, the result allows properties that it does not declare.
        """
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return node
        if _CHANGING.isdisjoint(node) and node.get("type") != "file":
            return node
        is_open = is_open or (self._is_input and "allOf" in node and self._contradicts(node))
        if is_open and node.get("additionalProperties") is False:
            node = {key: value for key, value in node.items() if key != "additionalProperties"}
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if is_open:
                reference = self._open(reference)
                node = {**node, "$ref": reference}
            pending.append(reference)
            if self._is_input and "/oneOf/" in reference and (moved := self._moved(reference)) != reference:
                node = {**node, "$ref": moved}
            if len(node) == 1:
                return node
        if self._casts and "discriminator" in node:
            pending += mapped_kinds(node)
        changed: Json = {}
        hidden = self._hidden_names(node) | not_required
        if hidden and isinstance(required := node.get("required"), list):
            kept = [name for name in required if name not in hidden]
            if len(kept) != len(required):
                changed["required"] = kept
        for key in node:
            self._child(key, node[key], hidden, changed, pending, depth + 1, is_open=is_open)
        if self._swagger:
            self._swagger_words(node, changed)
        if self._is_input:
            _loosen(node, changed)
        return self._changed(node, changed) if changed else node

    def _open(self, reference: str) -> str:
        """Return a reference to the same schema as an open member of an ``allOf``."""
        number = self._numbers.setdefault(reference, len(self._numbers))
        opened = f"#/{_OPEN}/{number}/{reference.rpartition('/')[2]}"
        self._opened[opened] = reference
        return opened

    def _moved(self, reference: str) -> str:
        """Return a reference into a ``oneOf`` as it must be after the ``oneOf`` has become an ``anyOf``."""
        node: Any = self._document.root
        tokens = pointer_tokens(reference[1:])
        for position, key in enumerate(tokens):
            if isinstance(node, list):
                node = node[int(key)] if key.isdecimal() and int(key) < len(node) else None
                continue
            if not isinstance(node, dict):
                return reference
            is_union = key == "oneOf" and isinstance(node.get(key), list) and "anyOf" not in node
            node = node.get(key)
            if is_union:
                tokens[position] = "anyOf"
        return pointer(tokens)

    def _changed(self, node: Json, changed: Json) -> Json:
        result = {**node, **changed}
        if "anyOf" in changed and "anyOf" not in node:
            del result["oneOf"]
        if result.get("required") == []:
            del result["required"]  # draft 4 forbids an empty list
        if self._swagger and isinstance(name := result.get("discriminator"), str):
            # Of 2.0: the name of the property alone.
            result["discriminator"] = {"propertyName": name}
        return result

    def _child(
        self,
        key: str,
        child: Any,
        hidden: frozenset[str],
        changed: Json,
        pending: list[str],
        depth: int,
        *,
        is_open: bool,
    ) -> None:
        if key in _MAPS and isinstance(child, dict):
            self._map(key, child, hidden if key == "properties" else frozenset(), changed, pending, depth)
        elif key in _LISTS and isinstance(child, list):
            inherited, is_open = (hidden, is_open) if key == "allOf" else (frozenset(), False)
            items = [self._transform(item, inherited, pending, depth, is_open=is_open) for item in child]
            if any(new is not old for new, old in zip(items, child, strict=True)):
                changed[key] = items
        elif key in _SINGLE:
            item = self._transform(child, frozenset(), pending, depth)
            if item is not child:
                changed[key] = item

    def _map(
        self, key: str, schemas: Json, drop: frozenset[str], changed: Json, pending: list[str], depth: int
    ) -> None:
        result: Json = {}
        differs = False
        for name, schema in schemas.items():
            if name in drop and self._is_hidden(schema):
                differs = True
                continue
            result[name] = self._transform(schema, frozenset(), pending, depth)
            differs = differs or result[name] is not schema
        if differs:
            changed[key] = result

    def _swagger_words(self, node: Json, changed: Json) -> None:
        if node.get("x-nullable") is True:
            changed["nullable"] = True
        if node.get("type") == "file":
            changed["type"] = "string"
        if isinstance(node.get("discriminator"), str):
            changed["discriminator"] = node["discriminator"]  # marks the copy; it is made into today's form there

    def _hidden_names(self, node: Json) -> frozenset[str]:
        """Return the names of hidden properties of ``node`` and of the schemas in its ``allOf``."""
        return frozenset(
            name
            for part in self._composed(node)
            for name, schema in _properties(part).items()
            if self._is_hidden(schema)
        )

    def _contradicts(self, node: Json) -> bool:
        """Return True if a member of ``allOf`` forbids properties that another member declares."""
        parts = list(self._composed(node))
        names = {name for part in parts for name in _properties(part)}
        return any(
            part.get("additionalProperties") is False and names - _properties(part).keys() for part in parts
        )

    def _composed(self, node: Json) -> Iterator[Json]:
        """Yield ``node`` and the schemas in its ``allOf``, also indirect ones, each once."""
        pending: list[Any] = [node]
        seen: set[int] = set()
        while pending and len(seen) < _MAX_COMPOSED:
            try:
                part = self._document.resolve(pending.pop())
            except PointerError:
                continue
            if isinstance(part, dict) and id(part) not in seen:
                seen.add(id(part))
                yield part
                if isinstance(members := part.get("allOf"), list):
                    pending += members

    def _is_hidden(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        if schema.get(self._hidden) is True:
            return True
        if "$ref" not in schema:
            return False
        try:
            target = self._document.resolve(schema)
        except PointerError:
            return False
        return isinstance(target, dict) and target.get(self._hidden) is True


def _properties(schema: Json) -> Json:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _loosen(node: Json, changed: Json) -> None:
    """Add less strict forms of ``oneOf`` and ``enum`` to ``changed``."""
    if "oneOf" in node and "anyOf" not in node:
        changed["anyOf"] = changed.get("oneOf", node["oneOf"])
    members = node.get("enum")
    if isinstance(members, list) and _is_text(node.get("type")):
        texts = [json.dumps(member) if isinstance(member, (bool, int, float)) else member for member in members]
        if texts != members:
            changed["enum"] = texts


def _is_text(kind: Any) -> bool:
    """Return True if a ``type`` allows text and no other scalar."""
    kinds = kind if isinstance(kind, list) else [kind]
    return "string" in kinds and not {"boolean", "integer", "number"}.intersection(map(str, kinds))


def _whole(tokens: list[str]) -> str:
    return "whole " + pointer(tokens)
