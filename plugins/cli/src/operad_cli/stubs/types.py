"""Python types made from JSON Schemas: TypedDicts, Literals and unions. Each definition becomes one type."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

from operad_schema import definition_name, object_members

_TYPING = ("Any", "AsyncGenerator", "Literal", "Never", "NotRequired", "TypeAlias", "TypedDict")
WORDS = frozenset((*_TYPING, "None", "bool", "dict", "float", "int", "list", "str"))
"""The names of builtins and of ``typing`` that types use."""
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_WORD = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|([A-Za-z_]\w*)")
_DEEPEST = 40
"""How many levels of nested schemas have types. Deeper ones are ``Any``."""


def words_of(expression: str) -> set[str]:
    """Return the names in a type, without the contents of its literals."""
    return {found for found in _WORD.findall(expression) if found}


def without(expression: str, names: Iterable[str]) -> str:
    """Return a type with ``_`` before the given names, because they mean something else where the type is used."""
    taken = frozenset(names)
    return _WORD.sub(lambda match: f"_{match[1]}" if match[1] in taken else match[0], expression)


def class_name(text: str) -> str:
    """Return a class name for a text, such as ``PullRequest`` for ``pull-request``."""
    name = "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", text))
    name = name if name[:1].isalpha() else f"N{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


class Types:
    """The Python types of one module, made from schemas.

    Args:
        definitions: the targets of ``#/$defs/``. More may be added later.
        taken: names that the types must not have.
    """

    def __init__(self, definitions: Mapping[str, Any], taken: Iterable[str]) -> None:
        self.blocks: list[str] = []
        """The source of classes and aliases, in the order in which they were needed."""
        self._definitions = definitions
        self._taken = {*taken, *WORDS}
        self._named: dict[str, str] = {}
        self._written: set[str] = set()
        self._direct: list[str] = []  # definitions of which an alias is being made, with no container in between
        self._depth = 0

    def of(self, schema: Any, hint: str) -> str:
        """Return the type of a schema, or ``Any`` if no type fits.

        New classes are added to `blocks`. Their names begin with ``hint``.
        """
        if schema is False:
            return "Never"
        if not isinstance(schema, Mapping) or self._depth > _DEEPEST:
            return "Any"
        self._depth += 1
        try:
            return self._of(schema, hint)
        finally:
            self._depth -= 1

    def _of(self, schema: Mapping[str, Any], hint: str) -> str:
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"])
        if "const" in schema:
            return _literal([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _literal(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                union = self._union(schema, key, hint)
                if union is not None:
                    return union
        if schema.get("allOf"):
            return self._all(schema, hint)
        kinds = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else None)
        if kinds is None:
            return "Any"
        return _joined(self._kind(kind, schema, hint) for kind in ([kinds] if isinstance(kinds, str) else kinds))

    def _kind(self, kind: str, schema: Mapping[str, Any], hint: str) -> str:
        if kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array":
            items = [*schema.get("prefixItems", ()), *([schema["items"]] if "items" in schema else [])]
            return f"list[{self._inside(items, f'{hint}Item')}]"
        if kind != "object":
            return "Any"
        if schema.get("properties"):
            return self._typed_dict(hint, schema)
        extra = schema.get("additionalProperties", True)
        return f"dict[str, {self._inside([extra], f'{hint}Value')}]"

    def _inside(self, schemas: list[Any], hint: str) -> str:
        """Return the type of schemas in a container, where a definition may refer to itself."""
        outer, self._direct = self._direct, []
        try:
            return _joined(self.of(each, hint) for each in schemas)
        finally:
            self._direct = outer

    def _reference(self, reference: str) -> str:
        name = definition_name(reference)
        if name in self._direct or name not in self._definitions:
            return "Any"  # it refers only to itself
        known = self._named.get(name)
        if known is None:
            body = self._definitions[name]
            known = self._named[name] = self._free(class_name(name))
            self._direct.append(name)
            made = self.of(body, known if _is_object(body) else f"{known}Object")
            self._direct.pop()
            if made != known:
                self.blocks.append(f"{known}: TypeAlias = {made}\n")
        return known

    def _union(self, schema: Mapping[str, Any], key: str, hint: str) -> str | None:
        """Return the type of a union; None if its branches do not determine one, such as those of ``required``."""
        base = {word: value for word, value in schema.items() if word not in (key, "description", "title")}
        branches = [branch for branch in schema[key] if branch is not False]
        if base.get("properties"):
            if not any(object_members(branch, self._definitions)[0] for branch in branches):
                return None
            branches = [{"allOf": [base, branch]} for branch in branches]
        parts = [
            self.of(branch, hint if len(branches) == 1 else f"{hint}{n}") for n, branch in enumerate(branches, 1)
        ]
        if "Any" in parts and "type" in base:
            return None
        return _joined(parts)

    def _all(self, schema: Mapping[str, Any], hint: str) -> str:
        parts = [part for part in schema["allOf"] if part is not True and part != {}]
        rest = {word: value for word, value in schema.items() if word in ("properties", "type", "required")}
        if len(parts) == 1 and not rest.get("properties"):
            return self.of(parts[0], hint)
        if object_members(schema, self._definitions)[0]:
            return self._typed_dict(hint, schema)
        types = [made for part in (*parts, rest) if (made := self.of(part, hint)) != "Any"]
        return types[0] if types else "Any"

    def _typed_dict(self, hint: str, schema: Mapping[str, Any]) -> str:
        name = hint if hint in self._named.values() and hint not in self._written else self._free(hint)
        self._written.add(name)
        properties, required = object_members(schema, self._definitions)
        fields = {
            key: self._inside([value], name + class_name(key))
            if key in required
            else f"NotRequired[{self._inside([value], name + class_name(key))}]"
            for key, value in properties.items()
        }
        words = set().union(*(words_of(type) for type in fields.values()))
        if all(_is_field(key) and key not in words for key in fields):
            about = docstring(str(schema.get("description") or schema.get("title") or ""), "    ")
            lines = [f"    {key}: {type}\n" for key, type in fields.items()]
            self.blocks.append(f"class {name}(TypedDict):\n{about}{''.join(lines)}")
        else:
            inner = ", ".join(f"{text!r}: {type}" for text, type in fields.items())
            self.blocks.append(f"{name} = TypedDict({name!r}, {{{inner}}})\n")
        return name

    def _free(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}{number}", number + 1
        self._taken.add(name)
        return name


def docstring(text: str, indent: str) -> str:
    """Return the source of a docstring with this text, indented by ``indent``; ``""`` if the text is empty."""
    text = "".join(letter if letter.isprintable() else "\n" if letter == "\n" else " " for letter in text)
    text = text.strip().replace("\\", "\\\\")
    if '"""' in text or text.endswith('"'):
        text = text.replace('"', '\\"')
    lines = [f"{indent}{line}".rstrip() for line in text.splitlines()]
    return f'{indent}"""{chr(10).join(lines).lstrip()}"""\n' if lines else ""


def _is_object(schema: Any) -> bool:
    return (
        isinstance(schema, Mapping)
        and schema.get("type", "object") == "object"
        and schema.keys().isdisjoint(("anyOf", "oneOf", "enum", "const", "$ref"))
    )


def _is_field(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def _literal(values: list[Any]) -> str:
    if not values:
        return "Never"
    kept = [value for value in values if value is None or isinstance(value, str | bool | int)]
    if len(kept) < len(values):
        return "Any"
    unique = list(dict.fromkeys((type(value), value) for value in kept))
    return f"Literal[{', '.join(repr(value) for _, value in unique)}]"


def _joined(types: Iterable[str]) -> str:
    unique = list(dict.fromkeys(types))
    if "Any" in unique or not unique:
        return "Any"
    return " | ".join(sorted(unique, key=lambda each: each == "None"))
