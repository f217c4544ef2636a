"""Documents with anything in the place of anything: they end in operations, or in an error that is ours."""

import copy
import json
import random
from pathlib import Path

import pytest

from operad import CallError, ConfigError, SourceError
from plugins.openapi.tests.making import api, body, made, parameter

DOCUMENTS = json.loads(Path(__file__).with_name("documents.json").read_text())
JUNK = [
    None, True, 0, -1, 3.5, "", "x", [], [1], {}, {"$ref": "#/nope"}, {"$ref": 5}, {"$ref": "#"}, ["a"], {"a": 1},
    {"type": "string"}, "#/components/schemas/X", {1: 2}, {"in": "query"}, [{"$ref": "#/paths"}],
]  # fmt: skip
CONFIGS = [
    {},
    {"include": ["*"]},
    {"auth": {"type": "bearer", "token": "t"}},
    {"base_url": "http://127.0.0.1:1", "extras": ["query", "body", "headers"], "names": "fastapi"},
    {"auth": {"type": "oauth2", "client_id": "i", "client_secret": "s", "token_url": "https://h/t"}},
]


def places(node, path=()):
    if path:
        yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def mutated(document, chance):
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(list(places(document)))
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        kind = chance.random()
        if kind < 0.2 and isinstance(holder, dict):
            del holder[path[-1]]
        elif kind < 0.3 and isinstance(holder, dict):
            holder[chance.choice([5, None, "x-y", "", True])] = holder.pop(path[-1])
        else:
            holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    return document


@pytest.mark.parametrize("seed", range(8))
def test_a_document_with_anything_anywhere_ends_in_operations_or_an_error_of_ours(seed):
    chance = random.Random(seed)
    for _ in range(40):
        document = mutated(copy.deepcopy(DOCUMENTS[chance.choice(["swagger", "openapi"])]), chance)
        try:
            found = made(document, **{"base_url": None, **chance.choice(CONFIGS)})
            for operation in found:
                use(operation)
        except (SourceError, ConfigError, CallError):
            continue


def use(operation):
    """All that a registry asks of an operation before it calls it."""
    spec = operation.spec
    spec.to_wire()
    assert [error.schema.raw is None for error in spec.error_schemas].count(True) == 0
    assert spec.output_schema.raw is not None
    spec.input_schema.is_valid({})
    operation.adapt({"a": None, "b": 1})


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data"])
@pytest.mark.parametrize("closed", [True, False])
def test_schemas_composed_of_more_than_can_be_counted_are_planned(kind, closed):
    own = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
    if closed:
        own["additionalProperties"] = False
    schemas = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 30 + [own]} for n in range(9)}
    schemas["S9"] = {"type": "object", "properties": {"id": {"type": "string", "readOnly": True}}}
    operation = body({"$ref": "#/components/schemas/S0"}, media=kind)
    (found,) = made(api({"post /a": operation}, version="3.0.3", components={"schemas": schemas}))
    assert list(found.spec.input_schema.raw["properties"]) == ["body"]


def test_the_names_of_parameters_are_not_compared_each_with_each():
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    parameters = [parameter(Name(f"p{n}")) for n in range(500)]
    (found,) = made(api({"get /a": {"parameters": parameters}}, version="3.0.3"))
    assert len(found.spec.input_schema.raw["properties"]) == 500
    assert compared < 500 * 20
