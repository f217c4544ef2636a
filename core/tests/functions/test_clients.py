"""Clients: a namespace as an object, and the names that Python code has for operations and fields."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.tests.kit import registry_of, spec
from operad import CallError, OperationContext, OperationRegistry, build_env, operation
from operad.names import attribute_names, keyword_names

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


@operation(namespace="shop", name="books/find", type="query", input_schema=TABLES["client_schema"])
async def find(input: Any) -> Any:
    return input


@operation(namespace="shop")
async def ticks(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@operation(namespace="shop")
async def nested(context: OperationContext) -> Any:
    return (await context.env.shop.books_find(from_=1, if_=2)).data


@pytest.fixture
def registry() -> OperationRegistry:
    return registry_of(find, ticks, nested)


async def test_a_client_answers_data_by_the_names_that_python_has(registry: OperationRegistry) -> None:
    for name, texts in (("one", {"description": "d", "title": "t"}), ("two", {"title": "t"})):
        registry.register_spec(spec(f"told.{name}", **texts))
    assert [registry.client("told")[name].__doc__ for name in ("one", "two", "none")] == ["d", "t", None]
    shop = registry.client("shop")
    assert dir(shop) == ["books_find", "nested", "ticks"]
    given = await shop.books_find(from_=1, to_=2, timeout_=3, if_=4, timeout=5.0)
    assert given == {"from": 1, "to_": 2, "timeout": 3, "if": 4}
    assert await shop["books/find"]({"from": 1}) == {"from": 1}
    assert (shop.books_find.__name__, shop.books_find.__qualname__) == ("books/find", "books/find")
    assert [item async for item in shop.ticks(count=2)] == [0, 1]
    with pytest.raises(CallError, match="both an input and keywords"):
        shop.books_find({"from": 1}, to_=1)
    with pytest.raises(CallError, match=r"shop\.nothing"):
        await shop.nothing()


async def test_a_handlers_env_has_the_names_of_a_client(registry: OperationRegistry) -> None:
    assert await registry.client("shop").nested() == {"from": 1, "if": 2}


async def test_views_and_bound_calls_have_clients_and_a_client_follows_its_registry(
    registry: OperationRegistry,
) -> None:
    shown = registry.view(prefix="x").client("x")
    assert await shown.shop_books_find(to_=1) == {"to_": 1}
    bound = registry.bound(timeout=5.0).client("shop")
    assert await bound.books_find(from_=1) == {"from": 1}
    registry.unregister("shop.books/find")
    assert dir(bound) == ["nested", "ticks"]
    with pytest.raises(CallError, match=r"shop\.books_find"):
        await bound.books_find()


def test_an_env_takes_a_registry_that_is_not_hashable() -> None:
    class Listing:
        __hash__ = None  # type: ignore[assignment]  # how Python marks an unhashable class
        __slots__ = ()

        def specs(self) -> list[Any]:
            return [find.spec]

        def get_spec(self, operation_id: str) -> Any:
            return None

    listing: Any = Listing()
    env = build_env(listing, OperationContext())
    assert dir(env.shop) == ["books_find"]
    assert env.shop.books_find.id == "shop.books/find"


def test_no_name_passes_from_one_operation_to_another() -> None:
    assert attribute_names(["a/b"]) == {"a_b": "a/b"}
    both = attribute_names(["a/b", "a-b"])
    assert sorted(both.values()) == ["a-b", "a/b"]
    assert "a_b" not in both
    assert attribute_names(["a/b", "a_b"])["a_b"] == "a_b"
    made = attribute_names(["class", "1", "ä", "_x", "None"])
    assert all(name.isidentifier() and "_" in name and not name.startswith("_") for name in made)


def test_a_keyword_for_a_field_is_the_field_or_ends_in_an_underscore() -> None:
    assert keyword_names(list(TABLES["keywords"].values())) == TABLES["keywords"]
    assert set(keyword_names(["a b", "a-b"]).values()) == {"a b", "a-b"}
