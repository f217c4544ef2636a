"""What hostile schemas and values of 10 KB cost at most: ``python benchmarks/hostile.py``.

Each case is a schema and a value of up to about 10 KB that make the most of one weakness: many branches times many
items, towers of references, unions in unions, recursion, large enums, many patterns times many names. Prints, in
processor time, what validation, errors, cast, cast with check, and mismatches take of each case in which one takes
over the given seconds (default 0.1), and the worst of all.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from operad_schema import from_schema

SIZE = 10_000
CASES: dict[str, tuple[Any, Any]] = {}


def many(make: Callable[[int], Any]) -> list[Any]:
    """As many as fit into the size."""
    out: list[Any] = []
    size = 0
    while size < SIZE - 60:
        out.append(make(len(out)))
        size += len(json.dumps(out[-1], separators=(",", ":"))) + 1
    return out[:-1]


def name_of(number: int) -> str:
    """A name of three letters."""
    return "".join(chr(97 + (number // 26**place) % 26) for place in range(3))


def case(name: str, schema: Any, value: Any) -> None:
    """Add a case."""
    CASES[name] = schema, value


def nest(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


ints = many(lambda i: i % 10)
big = many(lambda i: i)
keys = {name_of(i): 1 for i in range(1200)}
case(
    "anyOf unevaluated 200",
    {
        "anyOf": many(lambda i: {"properties": {name_of(i): {"type": "integer"}}, "required": [name_of(i)]}),
        "unevaluatedProperties": False,
    },
    keys,
)
case(
    "anyOf unevaluated deep",
    {"anyOf": many(lambda i: {"properties": {name_of(i): {}}}), "unevaluatedProperties": {"type": "string"}},
    keys,
)
case("const branches x items", {"items": {"anyOf": many(lambda i: {"const": i})}}, [-1] * 4000)
case("const branches x distinct", {"items": {"anyOf": many(lambda i: {"const": i})}}, [-i for i in range(2000)])
case("minimum branches", {"items": {"oneOf": many(lambda i: {"minimum": 1})}}, ints)
case("enum ints", {"items": {"enum": big}}, [-1] * 4000)
case("enum arrays", {"items": {"enum": many(lambda i: [0, i])}}, many(lambda i: [0, -i]))
case("const arrays anyOf", {"items": {"anyOf": many(lambda i: {"const": [0, i]})}}, many(lambda i: [0, -i]))
case("unique", {"anyOf": many(lambda i: {"uniqueItems": True, "minItems": 99999})}, ints)
case("unique big", {"uniqueItems": True}, many(lambda i: {"a": [i]}))
case("unique deep x many", {"allOf": many(lambda i: {"uniqueItems": True})}, [ints[:2400], [*ints[:2399], 11]])
case("patternProperties x keys", {"patternProperties": {f"^{name_of(i)}x": {} for i in range(1000)}}, keys)
case(
    "patternProperties unanch",
    {
        "patternProperties": {f"{name_of(i)}x": False for i in range(900)},
        "additionalProperties": {"type": "string"},
    },
    keys,
)
case("pattern backtrack", {"allOf": many(lambda i: {"pattern": f"^[a-z]{{0,{i % 90}}}[a-z]*{i}$"})}, "a" * 4000)
case("pattern items", {"items": {"pattern": "^[a-z]{0,30}[a-z]*1$"}}, ["a" * 60] * 150)
case("propertyNames anyOf", {"propertyNames": {"anyOf": many(lambda i: {"const": str(i)})}}, keys)
case(
    "propertyNames pattern", {"propertyNames": {"allOf": many(lambda i: {"pattern": name_of(i)[:2] + "|."})}}, keys
)
case("contains min", {"contains": {"anyOf": many(lambda i: {"const": i})}, "minContains": 5000}, ints)
case("contains many", {"allOf": many(lambda i: {"contains": {"const": i}, "minContains": 2})}, ints)
case(
    "unevaluatedItems contains",
    {"allOf": many(lambda i: {"contains": {"const": i}, "minContains": 0}), "unevaluatedItems": False},
    ints,
)
case("many errors items", {"items": {"type": "string"}}, ints)
case("many errors props", {"additionalProperties": {"type": "string"}}, keys)
case("many errors anyOf", {"anyOf": many(lambda i: {"items": {"type": "string"}})}, ints)
case("many errors anyOf last", {"anyOf": many(lambda i: {"items": {"type": "integer"}})}, [*ints[:-1], "x"])


def tower(levels: int, width: int, key: str) -> dict[str, Any]:
    d: dict[str, Any] = {f"d{levels}": {"type": "integer"}}
    for i in range(levels):
        d[f"d{i}"] = {key: [{"items": {"$ref": f"#/$defs/d{i + 1}"}} for _ in range(width)]}
    return {"$ref": "#/$defs/d0", "$defs": d}


def nestv(levels: int, width: int) -> Any:
    return 1 if levels == 0 else [nestv(levels - 1, width) for _ in range(width)]


for key in ("allOf", "anyOf", "oneOf"):
    case(f"tower {key} 8x20", tower(8, 20, key), nestv(8, 2))
    case(f"tower {key} 3x30 wide", tower(3, 30, key), nestv(3, 13))
    case(f"tower {key} 3x4 wide", tower(3, 4, key), nestv(3, 13))
    case(f"tower {key} bad", tower(3, 30, key), [*nestv(2, 13), [["x"]]])
d: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(12)}
d["d12"] = {"items": {"type": "integer"}}
case("double in place", {"$ref": "#/$defs/d0", "$defs": d}, ints)
case("items double in place", {"items": {"$ref": "#/$defs/d0"}, "$defs": d}, [[1]] * 2000)
rec = {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "maxItems": 3}]}
case("recursive", rec, nest(190, 1))
case("recursive wide", rec, nestv(10, 2))
case("recursive bad", rec, nest(190, "x"))
case("recursive wide bad", rec, [nestv(9, 2), nest(100, "x")])
rec2 = {
    "$defs": {
        "A": {
            "anyOf": [
                {"type": "integer"},
                {"type": "array", "items": {"$ref": "#/$defs/A"}},
                {"type": "array", "items": {"$ref": "#/$defs/B"}},
            ]
        },
        "B": {
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#/$defs/A"}},
                {"type": "array", "items": {"$ref": "#/$defs/B"}},
            ]
        },
    },
    "$ref": "#/$defs/A",
}
case("AB", rec2, nestv(10, 2))
case("AB bad", rec2, [nestv(9, 2), nest(80, None)])
case("AB deep", rec2, nest(190, "x"))
dyn = {
    "$id": "http://x/a",
    "$dynamicAnchor": "n",
    "type": "object",
    "properties": {
        "c": {"items": {"$dynamicRef": "#n"}},
        "d": {"anyOf": [{"$dynamicRef": "#n"}, {"type": "string"}, {"$dynamicRef": "#n"}]},
    },
    "unevaluatedProperties": False,
}
v: Any = {}
for _ in range(190):
    v = {"c": [{}], "d": v}
case("dynamic", dyn, v)
v = {"zz": 1}
for _ in range(190):
    v = {"c": [{}], "d": v}
case("dynamic bad", dyn, v)
une = {
    "unevaluatedProperties": False,
    "anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}, "b": {}}}],
}
v = {"zz": 1}
for _ in range(190):
    v = {"a": v}
case("unevaluated recursive", une, v)
lv: Any = {"type": "integer"}
for i in range(28):
    lv = (
        {"anyOf": [lv, {"required": ["q"]}], "unevaluatedProperties": False}
        if i % 2
        else {"anyOf": [lv, {"required": ["q"]}]}
    )
case("unevaluated nested unions", lv, keys)
case("props x objects", {"items": {"properties": {name_of(i): {} for i in range(1000)}}}, [{}] * 3300)
case(
    "props default x objects",
    {"items": {"properties": {name_of(i): {"default": 0} for i in range(500)}}},
    [{}] * 3300,
)
case(
    "props required x objects",
    {
        "items": {
            "properties": {name_of(i): {"type": "integer"} for i in range(300)},
            "required": [name_of(i) for i in range(300)],
            "type": "object",
        }
    },
    [{}] * 3300,
)
case(
    "props x objects one key",
    {
        "items": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name_of(i): {"type": "integer"} for i in range(400)},
        }
    },
    [{"aaa": 1}] * 1000,
)
case(
    "union of objects",
    {"items": {"anyOf": many(lambda i: {"properties": {name_of(i): {"const": 1}}})}},
    [{"aaa": 2, "baa": 1}] * 500,
)
case(
    "union of objects2",
    {"items": {"oneOf": many(lambda i: {"type": "object", "properties": {"a": {"const": i}}})}},
    [{"a": -1}] * 1200,
)
case("union scalars cast", {"items": {"anyOf": many(lambda i: {"type": "integer", "minimum": i})}}, ["1"] * 2400)
case("dependentSchemas", {"dependentSchemas": {name_of(i): {"minProperties": i} for i in range(300)}}, keys)
case(
    "dependentRequired",
    {"dependentRequired": {name_of(i): [name_of(j) for j in range(30)] for i in range(50)}},
    keys,
)
case("multipleOf", {"allOf": many(lambda i: {"multipleOf": 0.1 + i / 1e6})}, 1e300)
case("multipleOf items", {"items": {"multipleOf": 1e-300}}, many(lambda i: 1e300))
case("multipleOf bignum", {"items": {"multipleOf": 7}}, [10**4000] * 2)
case("not nested", {"items": {"not": {"anyOf": many(lambda i: {"const": i})}}}, [-1] * 4000)
case(
    "fragile nested",
    {
        "$defs": {
            "a": {
                "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"items": {"type": "integer"}}},
                "not": {"required": ["zz"]},
                "minProperties": 1,
            }
        },
        "$ref": "#/$defs/a",
    },
    (lambda f: f(f, 180))(lambda f, n: {"y": ["1"] * 10} if n == 0 else {"y": ["1"] * 8, "x": f(f, n - 1)}),
)
KINDS = 16
case(
    "combinations of kinds",
    {
        "items": {"$ref": "#/$defs/T"},
        "$defs": {
            "T": {"allOf": [{"$ref": f"#/$defs/B{i}"} for i in range(KINDS)]},
            **{
                f"B{i}": {
                    "properties": {f"p{i}": {}},
                    "discriminator": {"propertyName": f"p{i}", "mapping": {"a": f"A{i}", "b": f"C{i}"}},
                }
                for i in range(KINDS)
            },
            **{
                f"{kind}{i}": {"properties": {f"{kind}{i}": {"type": "integer"}}}
                for i in range(KINDS)
                for kind in "AC"
            },
        },
    },
    [{f"p{i}": "ab"[number >> i & 1] for i in range(KINDS)} for number in range(0, 2**KINDS, 1213)],
)
case(
    "names of strangers",
    {
        "items": {"$ref": "#/$defs/B"},
        "$defs": {
            "B": {"properties": {"k": {"type": "string"}}, "discriminator": {"propertyName": "k"}},
            **{f"S{i}": {"properties": {"n": {"$ref": f"#/$defs/S{(i + 1) % 120}"}}} for i in range(120)},
        },
    },
    [{"k": f"S{i % 120}"} for i in range(700)],
)
case("string lens", {"allOf": many(lambda i: {"maxLength": 3})}, "a" * 9000)
case("items x allOf tower", {"items": {"allOf": many(lambda i: {"minimum": 0})}}, ints)
case("if chain", {"allOf": many(lambda i: {"if": {"required": [name_of(i)]}, "then": {"minProperties": 1}})}, keys)
case("oneOf all", {"oneOf": many(lambda i: {})}, keys)
case("enum long strings", {"items": {"enum": ["a" * 999 + str(i) for i in range(9)]}}, ["a" * 999 + "x"] * 9)


def main() -> None:
    """Time every case."""
    logging.disable(logging.CRITICAL)
    bound = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    worst = 0.0
    for name, (schema, value) in CASES.items():
        compiled = from_schema({**schema, "title": name})
        times = {}
        for action in ("is_valid", "errors", "cast", "normalizer", "mismatches"):
            start = time.process_time()
            getattr(compiled, action)(value)
            times[action] = time.process_time() - start
        worst = max(worst, *times.values())
        if max(times.values()) > bound:
            print(f"{name:30}" + "".join(f"{action} {seconds:.2f} s  " for action, seconds in times.items()))
    print(f"{len(CASES)} cases, at most {worst:.2f} s of processor time")


if __name__ == "__main__":
    main()
