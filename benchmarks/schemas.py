"""What schemas cost, as ratios to a hand-written check of the same shape: `python benchmarks/schemas.py`.

With OpenAPI documents as arguments, also what it takes to compile every component and response of each.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import jsonschema

from operad_schema import from_schema

TYPES = ["integer", "string", "boolean", "number", "string"]
SAMPLES: list[Any] = [7, "text", True, 1.5, "more"]
CLASSES = {"integer": int, "string": str, "boolean": bool, "number": (int, float)}


def flat(count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """An object of `count` required fields, and a valid value."""
    names = [f"field{index}" for index in range(count)]
    properties = {name: {"type": TYPES[index % 5]} for index, name in enumerate(names)}
    value = {name: SAMPLES[index % 5] for index, name in enumerate(names)}
    return {"type": "object", "properties": properties, "required": names}, value


def hand_written(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """The check of a flat object or of an array of them, as one would write it: one line per field."""
    if schema["type"] == "array":
        one = hand_written(schema["items"])
        return lambda value: isinstance(value, list) and all(map(one, value))
    lines = ["def check(v):", "    if not isinstance(v, dict): return False", "    try:"]
    for name, node in schema["properties"].items():
        if node["type"] == "object":
            lines.append(f"        if not below_{name}(v[{name!r}]): return False")
            continue
        classes = {"integer": "int", "string": "str", "boolean": "bool", "number": "(int, float)"}[node["type"]]
        lines.append(f"        x = v[{name!r}]")
        boolean = " or isinstance(x, bool)" if node["type"] in ("integer", "number") else ""
        lines.append(f"        if not isinstance(x, {classes}){boolean}: return False")
    lines += ["    except KeyError: return False", "    return True"]
    names = {
        f"below_{key}": hand_written(node)
        for key, node in schema["properties"].items()
        if node["type"] == "object"
    }
    exec("\n".join(lines), names)  # a benchmark's own text
    check: Callable[[Any], bool] = names["check"]
    return check


def microseconds(function: Callable[[Any], Any], value: Any) -> float:
    """The best of several runs, per call."""
    # Of the processor's time: other programs on the machine are not what is measured.
    timer = timeit.Timer(
        "function(value)", globals={"function": function, "value": value}, timer=time.process_time
    )
    number, _ = timer.autorange()
    number = max(1, number // 10)
    return min(timer.repeat(15, number)) / number * 1e6


def shapes() -> dict[str, tuple[dict[str, Any], Any]]:
    """The three shapes that are measured."""
    ten, item = flat(10)
    groups = {f"group{index}": flat(10) for index in range(5)}
    nested = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in groups.items()},
        "required": list(groups),
    }
    return {
        "5 fields": flat(5),
        "50 nested fields": (nested, {name: value for name, (_, value) in groups.items()}),
        "1,000 x 10 fields": ({"type": "array", "items": ten}, [item] * 1000),
    }


def compare() -> None:
    """Print the table of ratios."""
    print(f"{'':20}{'us':>10}{'ratio':>8}")
    for title, (schema, value) in shapes().items():
        ours = from_schema(schema)
        rows: dict[str, Callable[[Any], Any]] = {
            "hand-written": hand_written(schema),
            "fastjsonschema": fastjsonschema.compile(
                schema, use_default=False, use_formats=False, detailed_exceptions=False
            ),
            "operad validate": ours.validator,
            "operad cast": ours.caster,
            "operad cast+validate": ours.normalizer,
            "jsonschema": jsonschema.Draft202012Validator(schema).is_valid,
        }
        print(title)
        floor = 0.0
        for name, function in rows.items():
            cost = microseconds(function, value)
            floor = floor or cost
            print(f"  {name:20}{cost:>8.2f}{cost / floor:>8.1f}")


def compare_unevaluated() -> None:
    """Print what `unevaluatedProperties` costs beside `allOf`."""
    schema, value = flat(10)
    schema = {"allOf": [schema], "unevaluatedProperties": False}
    ours = from_schema(schema)
    rows = {"operad validate": ours.validator, "jsonschema": jsonschema.Draft202012Validator(schema).is_valid}
    print("10 fields, unevaluatedProperties")
    floor = microseconds(hand_written(flat(10)[0]), value)
    print(f"  {'hand-written':20}{floor:>8.2f}{1:>8.1f}")
    for name, function in rows.items():
        cost = microseconds(function, value)
        print(f"  {name:20}{cost:>8.2f}{cost / floor:>8.1f}")


def components(path: Path) -> None:
    """Compile every component and response schema of an OpenAPI document; print what that took."""
    document = json.loads(path.read_text("utf-8"))
    dialect: Any = "openapi-3.1" if str(document.get("openapi", "")).startswith("3.1") else "openapi-3.0"
    start = time.perf_counter()
    schemas = [
        from_schema(node, dialect=dialect, document=document, pointer=pointer)
        for pointer, node in pointers(document)
    ]
    made = time.perf_counter() - start
    each = []
    for schema in schemas:
        start = time.perf_counter()
        schema.is_unknown  # noqa: B018  # compiles
        each.append(time.perf_counter() - start)
    each.sort()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{path.stem}: {len(schemas)} schemas made in {made * 1e3:.1f} ms, {memory} MiB;")
    middle = each[len(each) // 2]
    print(f"  compiling: median {middle * 1e3:.2f} ms, most {each[-1] * 1e3:.0f} ms, all {sum(each):.2f} s")


def pointers(document: dict[str, Any]) -> list[tuple[str, Any]]:
    """The component and response schemas of a document, with their pointers."""
    found = [
        (f"/components/schemas/{escape(name)}", node) for name, node in document["components"]["schemas"].items()
    ]
    for path, item in document.get("paths", {}).items():
        for method, operation in item.items():
            responses = operation.get("responses", {}) if isinstance(operation, dict) else {}
            for status, response in responses.items():
                for media, content in response.get("content", {}).items():
                    if "schema" in content:
                        tokens = ["paths", path, method, "responses", status, "content", media, "schema"]
                        found.append(("/" + "/".join(map(escape, tokens)), content["schema"]))
    return found


def escape(token: str) -> str:
    """A token of a JSON Pointer."""
    return token.replace("~", "~0").replace("/", "~1")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    compare()
    compare_unevaluated()
    for argument in sys.argv[1:]:
        components(Path(argument))
