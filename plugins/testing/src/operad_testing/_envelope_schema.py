"""The JSON Schema of envelopes, which is derived from the attrs classes of their metadata."""

from __future__ import annotations

import collections.abc
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

import attrs

from operad.envelopes import EnvelopeKind
from operad.wire import wire_name


def envelope_schema(kinds: Iterable[EnvelopeKind]) -> dict[str, Any]:
    """Return the JSON Schema for the JSON form of envelopes of these kinds, such as `Plugins.envelope_kinds`."""
    metas, definitions = _meta_schemas([kind.meta_type for kind in kinds])
    definitions["ResponseMeta"] = {"oneOf": metas}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ResponseEnvelope",
        "type": "object",
        "properties": {"data": {}, "meta": {"$ref": "#/$defs/ResponseMeta"}},
        "required": ["data", "meta"],
        "$defs": definitions,
    }


def _meta_schemas(meta_types: Iterable[type[Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return one reference for each meta type, and the definitions for the references, with JSON names."""
    import msgspec

    types = list(meta_types)
    references, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    definitions = dict(components)
    for cls in {cls for meta_type in types for cls in _classes(meta_type)}:
        # msgspec distinguishes classes of one name by their module.
        full = re.sub(r"[^A-Za-z0-9.\-_]", "_", f"{cls.__module__}.{cls.__qualname__}")
        definition = definitions.get(full) or definitions[cls.__name__]
        _rename(definition, {field.name: wire_name(field) for field in attrs.fields(cls)})
    for meta_type, reference in zip(types, references, strict=True):
        definition = definitions[reference["$ref"].rpartition("/")[2]]
        definition["properties"] = {
            "source": {"const": meta_type.source},
            **definition.get("properties", {}),
            "encoding": {"const": "base64"},
        }
        definition["required"] = ["source", *definition.get("required", ())]
    return list(references), definitions


def _classes(hint: Any, seen: frozenset[Any] = frozenset()) -> Iterator[type[Any]]:
    """Yield the attrs classes that a type hint consists of."""
    if hint in seen:
        return
    if isinstance(hint, type) and attrs.has(hint):
        yield hint
        parts = tuple(get_type_hints(hint).values())
    else:
        parts = get_args(hint)
    for part in parts:
        if isinstance(part, collections.abc.Hashable):
            yield from _classes(part, seen | {hint})


def _rename(definition: dict[str, Any], names: Mapping[str, str]) -> None:
    properties = definition.get("properties", {})
    definition["properties"] = {names.get(name, name): schema for name, schema in properties.items()}
    if "required" in definition:
        definition["required"] = [names.get(name, name) for name in definition["required"]]
