"""The answers that documents of others publish as examples, through the whole pipeline, as if a server had said them.

`Judge` knows the schemas' words, and nothing of the code that it judges: with ``keep`` every key and item of an answer
is still there and every new one is a declared default; with ``cast`` every change is one that the rules allow.
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import OperationRegistry, load_plugins
from operad_openapi import http_envelope
from tests.kit import needed_document

EXAMPLES = {"github": 900, "openai": 150, "stripe": 0, "discord": 0, "opencode": 0, "petstore3": 0}
"""At least so many are found."""
MORE = {
    path.stem: path.absolute()
    for path in sorted(Path(os.environ.get("OPERAD_PUBLISHED", "/nowhere")).glob("*.json"))
}
"""Further documents, for the long run."""
SAMPLE = 60
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


class Judge:
    """Says what is wrong with what became of a value, by the document's own words."""

    def __init__(self, document: Any) -> None:
        self.document = document

    def resolved(self, node: Any) -> Any:
        for _ in range(50):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                break
            target: Any = self.document
            for token in node["$ref"][2:].split("/"):
                token = token.replace("~1", "/").replace("~0", "~")
                target = target[int(token)] if isinstance(target, list) else target[token]
            node = target
        return node

    # --- keep ---

    def parts(self, nodes: list[Any]) -> list[dict[str, Any]]:
        """All schemas that can have a say where ``nodes`` have: through references, members, alternatives."""
        found: dict[int, dict[str, Any]] = {}
        stack = list(nodes)
        while stack:
            node = self.resolved(stack.pop())
            if not isinstance(node, dict) or id(node) in found:
                continue
            found[id(node)] = node
            for word in ("allOf", "anyOf", "oneOf"):
                stack += node.get(word, [])
            stack += [node[word] for word in ("if", "then", "else") if word in node]
            stack += node.get("dependentSchemas", {}).values()
            if is_base(node):
                stack += [self.named(name) for name in node["discriminator"].get("mapping", {}).values()]
        return list(found.values())

    def children(self, nodes: list[Any], key: str) -> list[Any]:
        """The schemas of a member of an object."""
        found = []
        for part in self.parts(nodes):
            named = [part["properties"][key]] if key in part.get("properties", {}) else []
            named += [node for p, node in part.get("patternProperties", {}).items() if re.search(p, key)]
            found += named or [part[w] for w in ("additionalProperties", "unevaluatedProperties") if w in part]
        return found

    def items(self, nodes: list[Any], index: int) -> list[Any]:
        """The schemas of an item of an array."""
        found = []
        for part in self.parts(nodes):
            prefix = part.get("prefixItems", part["items"] if isinstance(part.get("items"), list) else [])
            if index < len(prefix):
                found.append(prefix[index])
            elif isinstance(part.get("items"), dict):
                found.append(part["items"])
        return found

    def kept(self, before: Any, after: Any, nodes: list[Any], where: str = "$") -> Iterator[str]:
        """What ``keep`` must not have done to ``before``."""
        if isinstance(before, dict) and isinstance(after, dict):
            for key in before.keys() - after.keys():
                yield f"{where}.{key}: lost"
            for key in after.keys() - before.keys():
                if not self.is_default(after[key], self.children(nodes, key)):
                    yield f"{where}.{key}: {after[key]!r} came from nowhere"
            for key in before.keys() & after.keys():
                yield from self.kept(before[key], after[key], self.children(nodes, key), f"{where}.{key}")
        elif isinstance(before, list) and isinstance(after, list):
            if len(before) != len(after):
                yield f"{where}: {len(before)} items became {len(after)}"
            for index, (old, new) in enumerate(zip(before, after, strict=False)):
                yield from self.kept(old, new, self.items(nodes, index), f"{where}[{index}]")
        elif not is_same(before, after) and not is_lossless(before, after):
            yield f"{where}: {before!r} became {after!r}"

    def is_default(self, value: Any, nodes: list[Any]) -> bool:
        """Whether one of the schemas declares the value as its default, itself with defaults."""
        beside = [node for node in nodes if isinstance(node, dict)]  # also beside a reference that hides the rest
        declared = [part["default"] for part in (*beside, *self.parts(nodes)) if "default" in part]
        return any(not list(self.kept(default, value, nodes)) for default in declared)

    # --- cast ---

    def named(self, target: str) -> Any:
        """The schema that a discriminator's mapping means."""
        reference = target if "/" in target else f"#/components/schemas/{target}"
        return self.resolved({"$ref": reference})

    def kind(self, base: Any, value: Any) -> Any:
        """The kind of a base that the tag of a value names; one that says nothing where it names none."""
        given = base["discriminator"]
        tag = value.get(given["propertyName"]) if isinstance(value, dict) else None
        if isinstance(tag, str) and tag in given.get("mapping", {}):
            return self.named(given["mapping"][tag])
        found = self.document.get("components", {}).get("schemas", {}).get(tag) if isinstance(tag, str) else None
        if found is not None and (found is base or any(base is part for part in self.lineage(found))):
            return found
        return {"additionalProperties": True}

    def lineage(self, node: Any) -> Iterator[Any]:
        for member in self.resolved(node).get("allOf", []):
            yield self.resolved(member)
            yield from self.lineage(member)

    def choices(
        self, node: Any, value: Any = None, depth: int = 0, bases: tuple[int, ...] = ()
    ) -> Iterator[list[dict[str, Any]]]:
        """The members of the conjunction that a node is (C2), once for each choice of alternatives (C9)."""
        node = self.resolved(node)
        if not isinstance(node, dict) or depth > 12:
            yield []
            return
        if is_base(node) and id(node) not in bases:
            kind, bases = self.kind(node, value), (*bases, id(node))
            node = {"allOf": [node, kind]} if kind is not node else node
        groups = [list(self.choices(member, value, depth + 1, bases)) for member in node.get("allOf", [])]
        groups += [
            [found for branch in node[word] for found in self.choices(branch, value, depth + 1, bases)]
            for word in ("anyOf", "oneOf")
            if word in node
        ]
        for combination in itertools.islice(itertools.product(*groups), 400):
            yield [node, *itertools.chain.from_iterable(combination)]

    def unlawful(self, before: Any, after: Any, nodes: list[Any], where: str = "$") -> str | None:
        """The rule that was broken by making ``after`` of ``before``, whichever alternatives were chosen."""
        if is_same(before, after) and (not isinstance(before, (dict, list)) or not before):
            return None
        reason: str | None = f"{where}: {before!r} became {after!r}"[:300]
        for members in self.choices({"allOf": nodes}, after):
            if isinstance(before, dict) and isinstance(after, dict):
                reason = self.unlawful_object(before, after, members, where)
            elif isinstance(before, list) and isinstance(after, list):
                reason = self.unlawful_array(before, after, members, where)
            elif is_lossless(before, after):
                reason = None
            if reason is None:
                return None
        return reason

    def unlawful_object(self, before: Any, after: Any, members: list[Any], where: str) -> str | None:
        declared = {key for part in members for key in part.get("properties", {})}
        required = {key for part in members for key in part.get("required", [])}
        closed = any(part.get("additionalProperties") is False for part in members)
        for key in sorted(before.keys() | after.keys()):
            at = f"{where}.{key}"
            if key not in before:
                if not self.is_default(after[key], self.children(members, key)) and key not in required:
                    return f"{at}: {after[key]!r} came from nowhere (C4, C8)"
                continue
            named = [part["properties"][key] for part in members if key in part.get("properties", {})]
            named += [n for p in members for r, n in p.get("patternProperties", {}).items() if re.search(r, key)]
            extra = [
                part[word]
                for part in members
                for word in ("additionalProperties", "unevaluatedProperties")
                if part.get(word) not in (None, False)
            ]
            if key not in after and any(self.resolved(node).get("writeOnly") is True for node in named if node):
                continue  # no part of an answer
            stays = bool(named) or bool(extra) or key in required or not (declared or closed)
            if stays != (key in after):
                return f"{at}: was {'dropped' if stays else 'let pass'} (C5)"
            if stays and (reason := self.unlawful(before[key], after[key], named or extra, at)):
                return reason
        return None

    def unlawful_array(self, before: Any, after: Any, members: list[Any], where: str) -> str | None:
        if len(before) != len(after):
            return f"{where}: {len(before)} items became {len(after)} (C6)"
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if reason := self.unlawful(old, new, self.items(members, index), f"{where}[{index}]"):
                return reason
        return None


def is_base(node: dict[str, Any]) -> bool:
    """Whether the tag of a value says which other schema it is of, too: a discriminator without alternatives."""
    return isinstance(node.get("discriminator"), dict) and not {"anyOf", "oneOf"} & node.keys()


def is_same(before: Any, after: Any) -> bool:
    """Whether two values are one in JSON: True is not 1, 1.0 is 1."""
    return isinstance(before, bool) == isinstance(after, bool) and bool(before == after)


def is_lossless(before: Any, after: Any) -> bool:
    """Whether one scalar says what the other does (C7)."""
    if before is None or after is None or isinstance(before, (dict, list)) or isinstance(after, (dict, list)):
        return False
    old, new = ({"true": 1, "false": 0}.get(str(value).lower(), value) for value in (before, after))
    try:
        return math.isclose(float(old), float(new), rel_tol=0)
    except ValueError:
        return False


def examples_of(document: Any, judge: Judge) -> Iterator[tuple[str, str, Any]]:
    """``method, path, value`` of every example of a JSON answer with a status of 2xx."""
    for path, item in document["paths"].items():
        for method in METHODS:
            for status, raw in item.get(method, {}).get("responses", {}).items():
                if not status.startswith("2"):
                    continue
                for media_type, media in judge.resolved(raw).get("content", {}).items():
                    if "json" in media_type:
                        for value in values_of(media, judge):
                            yield method, path, value
            for value in texts_of(item.get(method, {}).get("x-oaiMeta", {}).get("examples", [])):
                yield method, path, value


def values_of(media: Any, judge: Judge) -> Iterator[Any]:
    schema = judge.resolved(media.get("schema", {}))
    for holder in (media, schema):
        if "example" in holder:
            yield holder["example"]
    examples = media.get("examples", {})
    for entry in examples.values():
        entry = judge.resolved(entry)
        if "value" in entry:
            yield entry["value"]


def texts_of(examples: Any) -> Iterator[Any]:
    """OpenAI's: JSON as text, some of it abridged by dots."""
    for example in [examples] if isinstance(examples, dict) else examples:
        try:
            value = json.loads(example["response"])
        except (KeyError, TypeError, ValueError):
            continue
        if isinstance(value, (dict, list)):
            yield value


class Answers:
    """A registry whose operations answer what it is told."""

    def __init__(self, registry: OperationRegistry) -> None:
        self.registry = registry
        self.value: Any = None
        self.ids: dict[tuple[str, str], str] = {}

    async def load(self, path: Path) -> None:
        async with OperationRegistry(load_plugins(only=["openapi"])) as loading:
            for spec in await loading.load("openapi", namespace="x", spec=path, base_url="http://127.0.0.1:9"):
                if spec.type != "subscription":
                    where = str(spec.metadata["method"]).lower(), str(spec.metadata["path"])
                    self.ids.setdefault(where, spec.id)
                    self.registry.register(attrs.evolve(spec, input_schema=True), self.answer)

    async def answer(self, input: Any, context: Any) -> Any:
        return http_envelope(self.value, status_code=200, headers={}, content_type="application/json")

    async def ask(self, where: tuple[str, str], value: Any) -> Any:
        self.value = value
        return await self.registry.execute(self.ids[where], {})


async def judged(name: str, normalize: Any, sample: int | None) -> tuple[int, list[str]]:
    """How many examples of a document there are, and what is wrong with what became of them."""
    path = MORE.get(name) or needed_document(name)
    document = json.loads(path.read_bytes())
    judge = Judge(document)
    examples = list(examples_of(document, judge))
    chosen = examples if sample is None else examples[:: max(1, len(examples) // sample)]
    wrong = []
    async with OperationRegistry(
        load_plugins(only=["openapi"]), normalize=normalize, on_mismatch="ignore"
    ) as registry:
        answers = Answers(registry)
        await answers.load(path)
        for method, route, value in chosen:
            if (method, route) not in answers.ids:
                continue
            original = copy.deepcopy(value)
            envelope = await answers.ask((method, route), value)
            where = f"{method} {route}"
            if envelope.received is not value or value != original:
                wrong.append(f"{where}: received is not the answer as it came")
            schema = registry.get_spec(answers.ids[method, route]).output_schema
            nodes = [schema.raw]  # references lead into the document
            if normalize == "keep":
                wrong += [f"{where}: {reason}" for reason in judge.kept(value, envelope.data, nodes)]
                continue
            if reason := judge.unlawful(value, envelope.data, nodes):
                if is_same(value, envelope.data) and schema.is_valid(value):
                    continue  # C12
                wrong.append(f"{where}: {reason}")
            if schema.cast(envelope.data) != envelope.data:
                wrong.append(f"{where}: a second cast changes it again (C0)")
    return len(examples), wrong


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("normalize", ["keep", "cast"])
@pytest.mark.parametrize("name", ["openai"])
async def test_a_sample_of_published_answers_stays_what_it_was(name: str, normalize: str) -> None:
    _, wrong = await judged(name, normalize, SAMPLE)
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("normalize", ["keep", "cast"])
@pytest.mark.parametrize("name", [*EXAMPLES, *MORE])
async def test_every_published_answer_stays_what_it_was(name: str, normalize: str) -> None:
    """``keep`` loses nothing and adds nothing but declared defaults; ``cast`` changes what its rules say."""
    count, wrong = await judged(name, normalize, None)
    assert wrong == []
    assert count >= EXAMPLES.get(name, 0)


TABLES = json.loads(Path(__file__).with_name("judged.json").read_text())
PET, BASE = ({"$ref": f"#/components/schemas/{name}"} for name in ("Pet", "Base"))
JUDGE = Judge({"components": {"schemas": TABLES["schemas"]}})
GIVEN = TABLES["given"]


@pytest.mark.parametrize(("after", "reason"), TABLES["keep"])
def test_the_judge_of_keep_sees_each_loss_and_each_invention(after: Any, reason: str | None) -> None:
    found = list(JUDGE.kept(GIVEN, after, [PET]))
    assert [text[: len(reason)] for text in found] == [reason] if reason else found == []


@pytest.mark.parametrize(("after", "reason"), TABLES["cast"])
def test_the_judge_of_the_cast_sees_each_broken_rule(after: Any, reason: str | None) -> None:
    assert JUDGE.unlawful({**GIVEN, "extra": 5}, after, [PET]) == reason


@pytest.mark.parametrize("tag", ["k", "Kind", "other", None])
@pytest.mark.parametrize("after", [{"own": 5}, {"own": 5, "extra": 5}, {"extra": 5}, {}])
def test_the_judge_of_the_cast_knows_the_kinds_of_a_base(after: Any, tag: Any) -> None:
    before = {"tag": tag, "own": 5, "extra": 5}
    reason = JUDGE.unlawful(before, {"tag": tag, **after}, [BASE])
    expected = {"own": 5} if tag in ("k", "Kind") else {"own": 5, "extra": 5}
    assert (reason is None) == (after == expected)
