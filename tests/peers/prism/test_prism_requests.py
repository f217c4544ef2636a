"""The requests of operad-openapi before an independent judge: Prism validates them against the real documents.

For every operation one input with what is required and one with everything, generated from our own input schema
with a fixed seed. Prism answers 2xx, or 4xx with the header ``sl-violations``. Documents are prepared as Prism needs
them: no response schemas, served at the root, paths that differ only by a fixed query in a document of their own.

By default a sample of each document's operations, always the same; the whole of them, which takes a quarter of an
hour, with ``OPERAD_PRISM=full python -m pytest tests/peers/prism``.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import re._parser as re_parser
from pathlib import Path

import pytest

from operad import CallError, ErrorCode, OperationRegistry, load_plugins
from operad_testing import free_port
from tests.kit import listener, needed_document

HERE = Path(__file__).parent
TABLES = json.loads((HERE / "tables.json").read_text())
"""A value of each format, how many operations each document has, and the defects of Prism."""
PRISM = HERE / "node_modules" / "@stoplight" / "prism-cli" / "dist" / "index.js"

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(not PRISM.exists(), reason=f"needs node and Prism; run: npm install --prefix {HERE}"),
]

# --- inputs ------------------------------------------------------------------------------------------


class Impossible(Exception):
    """No value of the schema was found."""


class Generator:
    """Values of JSON Schemas: small, valid, the same for the same seed."""

    def __init__(self, document, seed, *, everything):
        self.document = document
        self.random = random.Random(seed)
        self.everything = everything

    def value(self, schema, depth=0):
        if schema is True or schema == {}:
            return "any"
        if depth > 12 or not isinstance(schema, dict):
            raise Impossible
        if "$ref" in schema:
            return self.value(self.lookup(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            options = [item for item in schema["enum"] if item is not None]
            if not options:
                raise Impossible
            return options[0]
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return self.alternative(schema, key, depth)
        if "allOf" in schema:
            return self.value(self.merged(schema), depth + 1)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((item for item in kind if item != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return getattr(self, f"{kind}_value")(schema, depth)

    def lookup(self, reference):
        node = self.document
        for token in reference[2:].split("/"):
            node = node[token.replace("%7B", "{").replace("%7D", "}").replace("~1", "/").replace("~0", "~")]
        return node

    def resolved(self, schema):
        for _ in range(20):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self.lookup(schema["$ref"])
        raise Impossible

    def merged(self, schema):
        result = {key: value for key, value in schema.items() if key != "allOf"}
        for raw in schema["allOf"]:
            member = self.resolved(raw)
            if "allOf" in member:
                member = self.merged(member)
            for key, value in member.items():
                if key == "properties":
                    result["properties"] = {**result.get("properties", {}), **value}
                elif key == "required":
                    result["required"] = [*result.get("required", []), *value]
                else:
                    result.setdefault(key, value)
        return result

    def alternative(self, schema, key, depth):
        rest = {name: value for name, value in schema.items() if name not in (key, "discriminator", "description")}
        targets = [self.resolved(branch) for branch in schema[key]]
        kinds = {target.get("type") for target in targets}
        for branch, target in zip(schema[key], targets, strict=True):
            # In a URL an integer is a text as well, and so would match two alternatives.
            if target.get("type") == "null" or (kinds == {"integer", "string"} and target["type"] == "integer"):
                continue
            with contextlib.suppress(Impossible):
                if rest.keys() & {"properties", "required", "type"}:
                    value = self.value({"allOf": [rest, target]}, depth + 1)
                    if key == "oneOf" and isinstance(value, dict):
                        others = {name for other in targets for name in other.get("required", [])}
                        for name in others - set(target.get("required", [])) - set(rest.get("required", [])):
                            value.pop(name, None)
                    return value
                value = self.value(target, depth + 1)
                if kinds == {"integer", "string"} and value.isdigit():
                    value = "alpha"
                discriminator = schema.get("discriminator", {})
                if isinstance(value, dict) and "mapping" in discriminator:
                    names = [n for n, ref in discriminator["mapping"].items() if ref == branch.get("$ref")]
                    if names and discriminator["propertyName"] not in value:
                        value[discriminator["propertyName"]] = names[0]
                return value
        raise Impossible

    def object_value(self, schema, depth):
        properties, required = schema.get("properties", {}), schema.get("required", [])
        result = {}
        for name, raw in properties.items():
            wanted = name in required
            if not wanted and not (self.everything and depth < 4):
                continue
            try:
                result[name] = self.value(raw, depth + 1)
            except Impossible:
                if wanted:
                    raise
        for name in required:
            result.setdefault(name, "any")
        if {"base64", "text", "path"} <= properties.keys():  # a file: one of them
            result = {"base64": "YWJj"}
        extra = schema.get("additionalProperties")
        while len(result) < schema.get("minProperties", 0) or (not properties and self.everything and not result):
            name = f"key{len(result)}"
            missing = next((known for known in properties if known not in result), None)
            if missing is not None:
                result[missing] = self.value(properties[missing], depth + 1)
            elif extra is False:
                break
            else:
                result[name] = self.value(extra if isinstance(extra, dict) else {"type": "string"}, depth + 1)
        return result

    def array_value(self, schema, depth):
        count = max(schema.get("minItems", 0), 1)
        items = schema.get("items", True)
        if "prefixItems" in schema:
            return [self.value(item, depth + 1) for item in schema["prefixItems"]]
        values = [self.value(items, depth + 1) for _ in range(count)]
        if schema.get("uniqueItems") and count > 1:
            options = self.resolved(items).get("enum", [])
            values = list(options[:count]) if len(options) >= count else list(map(distinct, range(count), values))
        return values

    def string_value(self, schema, depth):
        if schema.get("contentEncoding") == "base64" or schema.get("format") in ("byte", "base64"):
            return "YWJj"
        if schema.get("pattern"):
            return matching(schema["pattern"], schema.get("minLength", 0))
        known = TABLES["formats"].get(schema.get("format"))
        if known is not None:
            return known
        low, high = schema.get("minLength", 0), schema.get("maxLength", 10**9)
        text = self.random.choice(("alpha", "beta gamma", "é/?&=#%", "0", "x,y"))[:high]
        return text + "x" * max(low - len(text), 0)

    def integer_value(self, schema, depth):
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        if isinstance(low, bool) or low is None or low < 1 <= schema.get("maximum", 1):
            low = min(1, schema.get("maximum", 1))
        if schema.get("exclusiveMinimum") is True or schema.get("exclusiveMinimum") == low:
            low += 1
        step = schema.get("multipleOf", 1)
        return int(-(-low // step) * step)

    number_value = integer_value

    def boolean_value(self, schema, depth):
        return True

    def null_value(self, schema, depth):
        return None


def distinct(index, value):
    """The ``index``-th variant of a value."""
    if isinstance(value, str) and value.isdigit():
        return str(int(value) + index)
    return value + index if isinstance(value, int) else f"{value}{index}"


def matching(pattern, minimum):
    """A text that ``pattern`` matches: the shortest one, or as many repetitions as ``minimum`` needs."""
    try:
        text = _walk(re_parser.parse(pattern), minimum)
    except (re.error, StopIteration):
        raise Impossible from None
    if not re.search(pattern, text):
        raise Impossible
    return text


def _walk(node, minimum):
    return "".join(_piece(str(op), argument, minimum) for op, argument in node)


def _piece(op, argument, minimum):
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, inner = argument
        return _walk(inner, minimum) * max(low, min(minimum, high, 64))
    if op in ("SUBPATTERN", "BRANCH"):
        return _walk(argument[-1] if op == "SUBPATTERN" else argument[1][0], minimum)
    if op == "IN":
        return next(filter(None, (_member(str(kind), value) for kind, value in argument)), "a")
    if op == "LITERAL":
        return chr(argument)
    return {"ANY": "a", "NOT_LITERAL": "a"}.get(op, "")


def _member(kind, value):
    if kind in ("LITERAL", "RANGE"):
        return chr(value if kind == "LITERAL" else value[0])
    return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(value), "a") if kind == "CATEGORY" else ""


def inputs_of(spec):
    """One input with the required fields, one with all; those of them that our own schema takes."""
    schema, document = spec.input_schema.raw, DOCUMENT_OF[spec.namespace]
    found = []
    for everything in (False, True):
        generator = Generator(document, spec.id, everything=everything)
        with contextlib.suppress(Impossible):
            value = generator.value({**schema, "minProperties": 0})
            if value not in found:
                found.append(value)
    return found


def mutations_of(spec, value):
    """Inputs that the document forbids: a required field gone, a field of another type, a field too many."""
    schema = spec.input_schema.raw
    required = [name for name in schema.get("required", []) if name in value]
    if required:
        yield {name: item for name, item in value.items() if name != required[0]}
    yield {**value, "not-a-parameter": 1}
    for name, raw in schema["properties"].items():
        node = raw if isinstance(raw, dict) else {}
        if node.get("type") in ("integer", "boolean", "number"):
            yield {**value, name: "not a number"}
            break
        if node.get("type") == "object":
            yield {**value, name: 5}
            break
        if node.get("enum"):
            yield {**value, name: "not one of them"}
            break


# --- the judge ---------------------------------------------------------------------------------------

DOCUMENT_OF = {}
PATIENCE = 600
"""Seconds for an answer: a bound for what hangs, on a machine that has other things to do."""
END_WITH_PARENT = 'data:text/javascript,process.stdin.on("end", () => process.exit()).resume()'
"""Ends node with the process that started it, however that ends."""
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


def sampled(document, seed, size):
    """The paths and methods to examine: ``size`` of them, or all for ``None``; those with a fixed query first."""
    found = [(path, method) for path, item in document["paths"].items() for method in METHODS if method in item]
    if size is None or len(found) <= size:
        return set(found)
    random.Random(seed).shuffle(found)
    return set(sorted(found, key=lambda pair: "?" not in pair[0])[:size])


def prepared(document, chosen):
    """The document as ours loads it, and the documents that Prism gets: no more than the chosen operations."""
    ours = json.loads(json.dumps(document))
    ours.pop("servers", None)
    plain, special = {}, {}
    for path, item in ours["paths"].items():
        item.pop("servers", None)
        for method in METHODS:
            if method in item:
                item[method].pop("servers", None)
        (special if "?" in path or "#" in path else plain)[path] = item
    judges = []
    for paths in (plain, special):
        if not paths:
            continue
        # Webhooks and extensions refer to components that no path reaches.
        judged = {key: ours[key] for key in ("openapi", "info", "security", "components") if key in ours}
        judged["paths"] = {}
        for path, item in paths.items():
            copy = {key: value for key, value in item.items() if key not in METHODS or (path, key) in chosen}
            if not copy.keys() & set(METHODS):
                continue
            for method in METHODS:
                if method in copy:
                    node = {key: value for key, value in copy[method].items() if not key.startswith("x-")}
                    copy[method] = {**node, "responses": {"200": {"description": "ok"}}}
            judged["paths"][re.split("[?#]", path)[0]] = copy
        judged["components"] = reached(judged)
        if judged["paths"]:
            judges.append((set(paths), judged))
    return ours, judges


def reached(document):
    """The components that the paths reach, and the security schemes: Prism follows every reference of a document."""
    components = {"securitySchemes": document.get("components", {}).get("securitySchemes", {})}
    stack = [document["paths"]]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            stack += node.values()
            reference = node.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/components/"):
                kind, name = reference.split("/")[2:4]
                found = document["components"][kind][name.replace("~1", "/").replace("~0", "~")]
                if name not in components.setdefault(kind, {}):
                    components[kind][name] = found
                    stack.append(found)
    return components


class Prism:
    """A running Prism that validates requests against a document; started again when a request ends it."""

    def __init__(self, document, folder, name):
        self.document = document
        self.file = folder / f"{name}.json"
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.running = self.process = None

    async def __aenter__(self):
        await asyncio.to_thread(self.file.write_text, json.dumps(self.document))
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.running.__aexit__(None, None, None)

    async def start(self):
        options = ("--max-old-space-size=2048", "--import", END_WITH_PARENT)
        mock = ("mock", "-h", "127.0.0.1", "-p", str(self.port), self.file)
        self.running = listener(self.port, "node", *options, PRISM, *mock)
        self.process = await self.running.__aenter__()

    async def revive(self):
        """Start it again if the last request ended it; whether it did."""
        try:
            await asyncio.wait_for(self.process.wait(), 1)
        except TimeoutError:
            return False
        await self.__aexit__()
        await self.start()
        return True


async def judged(registry, spec, value):
    """``None`` if the request is accepted, else who refused it and why."""
    details = {}
    try:
        envelope = await registry.execute(spec.id, value, timeout=PATIENCE)
        headers, status = envelope.meta.headers, envelope.meta.status_code
    except CallError as error:
        if error.code == ErrorCode.VALIDATION_ERROR:
            return f"ours: {error.message}"
        if "expected a stream" in error.message:
            return None  # 2xx: the prepared document has no responses to stream
        details = error.details or {}
        headers, status = details.get("headers", {}), details.get("statusCode", 0)
        if not status:
            return f"transport: {error.message}"
    violations = [
        violation
        for violation in json.loads(headers.get("sl-violations", "[]"))
        if violation.get("severity") == "Error" and violation["location"][:1] == ["request"]
    ]
    if violations or status >= 400:
        return f"prism {status}: {json.dumps(violations or details.get('body'))[:600]}"
    return None


async def examine(name, folder, size=None):
    """The operations of a document, or ``size`` of them, before the judge."""
    text = await asyncio.to_thread(needed_document(name).read_bytes)
    document = json.loads(text)
    chosen = sampled(document, name, size)
    ours, judges = prepared(document, chosen)
    schemes = ours.get("components", {}).get("securitySchemes", {})
    kinds = {"apiKey": {"type": "apiKey", "token": "key"}}
    credentials = {}
    for scheme, node in schemes.items():
        if node.get("type") == "http" and node.get("scheme", "").lower() == "basic":
            credentials[scheme] = {"type": "basic", "username": "u", "password": "p"}
        else:
            credentials[scheme] = kinds.get(node.get("type"), {"type": "bearer", "token": "t"})
    report = {"operations": 0, "inputs": 0, "refused": {}, "mutated": 0, "let through": [], "without input": []}
    for index, (paths, document) in enumerate(judges):
        prism = Prism(document, folder, f"{name}{index}")
        async with prism, registry_of(name, ours, prism.base, credentials) as registry:
            for spec in registry.specs():
                where = (spec.metadata["path"], spec.metadata["method"].lower())
                if where[0] in paths and where in chosen and not spec.name.endswith("_stream"):
                    await examine_operation(registry, spec, prism, report)
    return report


@contextlib.asynccontextmanager
async def registry_of(name, document, base, credentials):
    DOCUMENT_OF[name] = document
    plugins = load_plugins(only=["openapi"])
    async with OperationRegistry(plugins, on_mismatch="ignore", normalize="off") as registry:
        await registry.load(
            "openapi", namespace=name, spec=document, base_url=base, credentials=credentials, retries=0
        )
        yield registry


async def examine_operation(registry, spec, prism, report):
    report["operations"] += 1
    values = inputs_of(spec)
    if not values:
        report["without input"].append(spec.name)
        return
    for number, value in enumerate(values):
        report["inputs"] += 1
        reason = await judged(registry, spec, value)
        if reason is not None and reason.startswith("transport") and await prism.revive():
            reason = "prism crashed"
        if reason is not None:
            report["refused"][f"{spec.name} {('required', 'all')[number]}"] = reason
    for value in mutations_of(spec, values[0]):
        report["mutated"] += 1
        reason = await judged(registry, spec, value)
        if reason is None:
            report["let through"].append((spec.name, value))
        elif reason.startswith("transport"):
            await prism.revive()


# --- the verdict -------------------------------------------------------------------------------------

LISTED = json.loads((HERE / "defects.json").read_text())
"""By document: the requests that Prism refuses wrongly, and by which of its defects."""


SAMPLE = None if os.environ.get("OPERAD_PRISM") == "full" else 40


@pytest.mark.parametrize("name", TABLES["operations"])
async def test_prism_accepts_our_requests_and_refuses_wrong_ones(name, tmp_path):
    report = await examine(name, tmp_path, SAMPLE)
    known = LISTED.get(name, {})
    assert report["operations"] == min(TABLES["operations"][name], SAMPLE or 10_000)
    assert report["without input"] == []
    assert {key: reason for key, reason in report["refused"].items() if key not in known} == {}
    if SAMPLE is None:
        assert known.keys() - report["refused"].keys() == set(), "these are accepted by now: strike them off"
    assert set(known.values()) <= set(TABLES["defects"])
    assert len(report["let through"]) <= 0.03 * report["mutated"], report["let through"][:20]
