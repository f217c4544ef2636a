# ruff: noqa: E501  # a table reads best with a row a line
"""Type hints as people write them, beside FastAPI and FastMCP: what each takes, checks and describes.

    python benchmarks/hints.py

Each hint becomes the parameter of a function, which is called over JSON with a value that fits and with one that does
not. ``ok``: the first arrives, the second is refused; ``lax``: the second is taken; ``wrong``: the first is refused;
``no``: the function is refused with an error. ``words``: the description that was written is lost. The peers run in an
environment of their own that uv makes.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HINTS = """
from __future__ import annotations
import collections.abc as abc, dataclasses, datetime, decimal, enum, pathlib, typing, uuid
from typing import *
from typing_extensions import TypedDict
import annotated_types as at, pydantic
try: import attrs
except ImportError: attrs = None

class Colour(enum.Enum):
    RED = "red"
class Level(enum.IntEnum):
    LOW = 1
@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
@dataclasses.dataclass
class Tree:
    name: str
    children: list["Tree"] = dataclasses.field(default_factory=list)
class Movie(TypedDict):
    title: str
class Maybe(TypedDict, total=False):
    deep: bool
class Pair(NamedTuple):
    a: int
    b: str
class Model(pydantic.BaseModel):
    n: int = pydantic.Field(ge=1)
class Shape(pydantic.BaseModel):
    kind: Literal["shape"]
    model: Model
UserId = NewType("UserId", int)
Positive = Annotated[int, at.Gt(0)]
CASES = [
    ("int", int, 1, "a"), ("int as 5.0", int, 5.0, 5.5), ("float", float, 1, "a"), ("str", str, "a", 1),
    ("bool", bool, True, "x"), ("None", type(None), None, 1), ("Any", Any, {"a": 1}, ...), ("object", object, [1], ...),
    ("bytes", bytes, "AAE=", 5), ("datetime", datetime.datetime, "2024-05-06T07:08:09Z", "x"),
    ("date", datetime.date, "2024-05-06", "x"), ("time", datetime.time, "07:08:09", "x"),
    ("timedelta", datetime.timedelta, "PT5S", "x"), ("UUID", uuid.UUID, "12345678-1234-5678-1234-567812345678", "x"),
    ("Decimal", decimal.Decimal, "1.5", "x"), ("Path", pathlib.Path, "a/b", 5), ("Enum", Colour, "red", "green"),
    ("IntEnum", Level, 1, 2), ("Literal", Literal["a", 1], "a", "b"), ("NewType", UserId, 3, "x"),
    ("Optional", Optional[int], None, "x"), ("int | str", Union[int, str], "a", [1]), ("int | None", Union[int, None], 1, "x"),
    ("list", list, [1], 5), ("list[int]", list[int], [1], ["x"]), ("set[int]", set[int], [1], ["x"]),
    ("frozenset[str]", frozenset[str], ["a"], [1]), ("tuple[int, str]", tuple[int, str], [1, "a"], [1]),
    ("tuple[int, ...]", tuple[int, ...], [1, 2], ["x"]), ("Sequence[int]", abc.Sequence[int], [1], ["x"]),
    ("dict", dict, {"a": 1}, 5), ("dict[str, int]", dict[str, int], {"a": 1}, {"a": "x"}),
    ("dict[int, str]", dict[int, str], {"1": "x"}, {"y": "x"}), ("Mapping[str, int]", abc.Mapping[str, int], {"a": 1}, {"a": "x"}),
    ("dataclass", Point, {"x": 1}, {"y": 1}), ("dataclass, unknown key", Point, {"x": 1}, {"x": 1, "z": 2}),
    ("recursive dataclass", Tree, {"name": "a", "children": [{"name": "b"}]}, {"name": "a", "children": [1]}),
    ("list of dataclasses", list[Point], [{"x": 1}], [{"y": 1}]), ("dict of dataclasses", dict[str, Point], {"a": {"x": 1}}, {"a": 1}),
    ("TypedDict", Movie, {"title": "M"}, {}), ("TypedDict, total=False", Maybe, {}, {"deep": "x"}),
    ("NamedTuple", Pair, [1, "a"], [1]), ("pydantic model", Model, {"n": 1}, {"n": 0}),
    ("nested models", Shape, {"kind": "shape", "model": {"n": 1}}, {"kind": "shape", "model": {"n": 0}}),
    ("list of models", list[Model], [{"n": 1}], [{"n": 0}]), ("model | None", Union[Model, None], None, {"n": 0}),
    ("union of classes", Union[Point, Movie], {"title": "M"}, {"q": 1}),
    ("Annotated, a string", Annotated[int, "the words"], 1, "x"), ("Annotated, Field(ge=)", Annotated[int, pydantic.Field(ge=1)], 1, 0),
    ("Annotated, Field(description=)", Annotated[int, pydantic.Field(description="the words")], 1, "x"),
    ("Annotated, Field(pattern=)", Annotated[str, pydantic.Field(pattern="^a")], "ab", "b"),
    ("Annotated, Ge", Annotated[int, at.Ge(1)], 1, 0), ("Annotated, Interval", Annotated[float, at.Interval(gt=0, lt=1)], 0.5, 1),
    ("Annotated, MultipleOf", Annotated[int, at.MultipleOf(3)], 3, 4), ("Annotated, Len", Annotated[str, at.Len(2, 3)], "ab", "a"),
    ("Annotated, MinLen of a list", Annotated[list[int], at.MinLen(1)], [1], []),
    ("list of Annotated", list[Positive], [1], [0]), ("dict of Annotated", dict[str, Positive], {"a": 1}, {"a": 0}),
    ("Annotated in a union", Union[Positive, None], 1, 0), ("Annotated, Predicate", Annotated[int, at.Predicate(lambda n: n % 2 == 0)], 2, 3),
]
"""

MINE = """
import asyncio, logging
from operad import CallError, OperationRegistry, operation
logging.disable()
async def run(name, hint, good, bad):
    async def f(a): return None
    f.__annotations__ = {"a": hint}
    made = operation(f)
    async with OperationRegistry() as registry:
        registry.register(made)
        async def takes(value):
            try: await registry.execute("local.f", {"a": value}); return True
            except CallError: return False
        schema = made.spec.input_schema.bundled()
        return await takes(good), bad is ... or not await takes(bad), schema
"""
FASTMCP = """
import asyncio, logging
from fastmcp import Client, FastMCP
logging.disable()
async def run(name, hint, good, bad):
    async def f(a): return None
    f.__annotations__ = {"a": hint}
    server = FastMCP("x"); server.tool(f)
    async with Client(server) as client:
        async def takes(value):
            try: await client.call_tool("f", {"a": value}); return True
            except Exception: return False
        schema = (await client.list_tools())[0].inputSchema
        return await takes(good), bad is ... or not await takes(bad), schema
"""
FASTAPI = """
import asyncio
from fastapi import Body, FastAPI
from fastapi.testclient import TestClient
async def run(name, hint, good, bad):
    async def f(a): return None
    f.__annotations__ = {"a": Annotated[hint, Body(embed=True)]}
    app = FastAPI(); app.post("/f")(f)
    client = TestClient(app, raise_server_exceptions=False)
    takes = lambda value: client.post("/f", json={"a": value}).status_code == 200
    return takes(good), bad is ... or not takes(bad), client.get("/openapi.json").json()
"""
LOOP = """
import json
async def main():
    for name, hint, good, bad in CASES:
        try:
            took, refused, schema = await run(name, hint, good, bad)
            words = "the words" not in json.dumps(schema) and "words" in repr(hint)
            word = "wrong" if not took else "ok" if refused else "lax"
            print(json.dumps([name, word + (", words lost" if words else "")]))
        except Exception as error:
            print(json.dumps([name, "no"]))
asyncio.run(main())
"""


def answers(python: str, body: str) -> dict[str, str]:
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(HINTS + body + LOOP)
    done = subprocess.run([python, file.name], capture_output=True, text=True, check=False)
    Path(file.name).unlink()
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:])
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from openapi import environment

    mine = answers(sys.executable, MINE)
    with environment(["fastapi", "fastmcp", "httpx", "annotated-types", "attrs"]) as python:
        columns = {"operad": mine}
        if Path(python).exists():
            columns["FastAPI"], columns["FastMCP"] = answers(python, FASTAPI), answers(python, FASTMCP)
    print("| hint | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for name in mine:
        print(f"| {name} | " + " | ".join(column.get(name, "–") for column in columns.values()) + " |")
    for title, column in columns.items():
        print(title, dict(collections.Counter(column.values())))


if __name__ == "__main__":
    main()
