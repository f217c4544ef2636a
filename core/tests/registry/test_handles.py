"""Operations as objects: ``registry["id"]`` completes, explains and calls itself, and pages are safe to show."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from core.tests.kit import data_of, op, registry_of, spec
from operad import CallError, Identity, Operation, OperationContext, OperationRegistry, ResponseEnvelope, operation
from operad.sync import OperationRegistry as Waiting
from operad.sync.portal import portal

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module", autouse=True)
def _portal() -> None:
    """Its thread stays for the whole process, and is no leak of one test."""
    portal()


@operation(namespace="math", type="query", title="Add")
async def add(a: int, b: int = 1) -> int:
    """Add two integers."""
    return a + b


@operation(namespace="math")
async def count(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


async def echo(input: Any, context: Any) -> Any:
    return [input, None if context.identity is None else context.identity.id]


def filled(registry: Any) -> Any:
    odd = spec("odd.pulls/create", description=EVIL, input_schema=TABLES["a_schema_of_odd_fields"])
    for each in (add, count, Operation(odd, echo)):
        registry.register(each)
    return registry


@pytest.fixture
def registry() -> OperationRegistry:
    made: OperationRegistry = filled(OperationRegistry())
    return made


async def test_an_operation_is_found_by_its_id_and_calls_itself(registry: OperationRegistry) -> None:
    handle = registry["math.add"]
    assert repr(handle) == "<operation math.add (query)>"
    assert (await handle(a=1)).data == 2
    assert (await handle({"a": 1, "b": 5})).data == 6
    assert await data_of(registry["math.count"].subscribe(to=2)) == [0, 1]
    context = OperationContext(identity=Identity("ann"))
    called = await registry["odd.pulls/create"]({"plain": 1, "timeout": 3}, context=context, timeout=5)
    assert called.data == [{"plain": 1, "timeout": 3}, "ann"]
    with pytest.raises(CallError, match="both an input and keywords"):
        handle({"a": 1}, b=2)


def test_an_id_that_is_not_there_names_the_nearest(registry: OperationRegistry) -> None:
    with pytest.raises(KeyError, match=r"unknown operation .*math\.ad.*did you mean .*math\.add"):
        registry["math.ad"]


def test_ids_complete_and_are_iterated(registry: OperationRegistry) -> None:
    ids = ["math.add", "math.count", "odd.pulls/create"]
    assert list(registry) == ids
    assert registry._ipython_key_completions_() == ids
    assert list(registry.view(prefix="x", include="math.*")) == ["x.math.add", "x.math.count"]


def test_it_explains_itself_and_its_fields_are_its_signature(registry: OperationRegistry) -> None:
    handle, odd = registry["math.add"], registry["odd.pulls/create"]
    assert (handle.__doc__ or "").startswith(
        "Add\n\nAdd two integers.\n\nArgs:\n    a: integer. \n    b: integer, optional."
    )
    assert list(inspect.signature(handle).parameters) == ["input", "a", "b"]
    assert list(inspect.signature(odd).parameters) == ["input", "plain", "from_", "x_y_", "timeout_"]
    assert (odd.__doc__ or "").endswith(
        "Args:\n    from: string | null, optional. Where it comes from.\n    x-y: Thing, optional. \n"
        "    timeout: number, optional. \n    plain: any."
    )


async def test_keywords_stand_for_fields_that_python_cannot_name(registry: OperationRegistry) -> None:
    called = await registry["odd.pulls/create"](plain=1, from_="here", timeout_=3)
    assert called.data == [{"plain": 1, "from": "here", "timeout": 3}, None]


@pytest.mark.parametrize("schema", [True, {}, {"properties": []}, {"type": "object", "properties": {"a": 7}}])
def test_any_schema_is_survived(schema: Any) -> None:
    assert "a.b" in registry_of(op("a.b", input_schema=schema))["a.b"]._repr_html_()


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


async def test_pages_hold_no_markup_of_others_and_are_bounded(registry: OperationRegistry) -> None:
    envelope = await registry["odd.pulls/create"]({"plain": EVIL})
    pages = [registry._repr_html_(), registry["odd.pulls/create"]._repr_html_(), envelope._repr_html_()]
    for page in pages:
        assert "script" not in Tags(page).tags
        assert "&lt;script&gt;" in page
    large = ResponseEnvelope(["x" * 100] * 10_000, envelope.meta)
    assert len(large._repr_html_()) < 20_000
    assert "<p>5 bytes</p>" in ResponseEnvelope(b"bytes", envelope.meta)._repr_html_()
    for number in range(200):
        registry.register(op(f"many.{number}"))
    page = registry._repr_html_()
    assert "203 operations: many (200), math (2), odd (1)" in page
    assert "and 103 more" in page


def test_without_await_it_answers_at_once() -> None:
    with Waiting() as waiting:
        registry = filled(waiting)
        assert registry["math.add"](a=1).data == 2
        assert [item.data for item in registry["math.count"].subscribe(to=2)] == [0, 1]
        assert "3 operations" in registry._repr_html_()
        with pytest.raises(KeyError):
            registry["math.sub"]


def test_a_page_is_a_table_with_texts_of_at_most_300_characters() -> None:
    head, cell = '<th scope="col" style="text-align:left">', '<td style="text-align:left">'
    row = f"{cell}{{}}</td>{cell}integer</td>{cell}{{}}</td>{cell}</td>"
    registry = registry_of(add, *(op(f"z.{number:02}", description="x" * (203 + number)) for number in range(99)))
    assert registry["math.add"].__name__ == "math.add"
    assert registry["math.add"]._repr_html_() == (
        "<h4>math.add <small>(query)</small></h4><p>Add two integers.</p><table><thead><tr>"
        + "".join(f"{head}{name}</th>" for name in ("field", "type", "required", "what it is"))
        + f"</tr></thead><tbody><tr>{row.format('a', 'yes')}</tr><tr>{row.format('b', '')}</tr></tbody></table>"
    )
    page = registry._repr_html_()
    assert "x" * 300 + "<" in page
    assert "x" * 300 + "…<" in page
    assert "more" not in page, "100 operations are shown"
