"""operad-regex-search: what it finds, and what patterns cannot do to it."""

from __future__ import annotations

import pytest

from operad import OperationRegistry, OperationSpec, Plugins

pytest.importorskip("re2", reason="google-re2 is not installed")
from operad_regex_search import plugin
from operad_regex_search.index import MAX_QUERY

BOOKS = {
    "shop.getBook": "Return one book.",
    "shop.getBooks": "List books.",
    "shop.order": "Order a book (hardcover).",
    "pets.feed": "Feed a pet.",
}


def registry_with(*plugins: tuple[object, str]) -> OperationRegistry:
    made = Plugins()
    for each, name in plugins:
        made.register(each, name)
    registry = OperationRegistry(made)
    for operation_id, description in BOOKS.items():
        namespace, _, name = operation_id.partition(".")
        registry.register_spec(OperationSpec(namespace=namespace, name=name, description=description))
    return registry


@pytest.fixture
def registry() -> OperationRegistry:
    return registry_with((plugin, "regex-search"))


def found(registry: OperationRegistry, query: str, limit: int = 10) -> list[str]:
    return [spec.id for spec in registry.search(query, limit)]


def test_a_pattern_finds_ids_before_descriptions(registry: OperationRegistry) -> None:
    assert found(registry, "BOOKS?$") == ["shop.getBook", "shop.getBooks"]
    assert found(registry, "book") == ["shop.getBook", "shop.getBooks", "shop.order"]
    assert found(registry, "^pets[.]|order") == ["pets.feed", "shop.order"]
    assert found(registry, "book", limit=1) == ["shop.getBook"]
    assert found(registry, "^$") == []


def test_the_index_follows_the_registry(registry: OperationRegistry) -> None:
    assert found(registry, "cats|^pets") == ["pets.feed"]
    registry.unregister("pets.feed")
    registry.register_spec(OperationSpec(namespace="pets", name="cats"))
    assert found(registry, "cats|^pets") == ["pets.cats"]


@pytest.mark.parametrize("first", ["regex", "search"])
def test_it_wins_over_operad_search_in_any_order(first: str) -> None:
    ranked = pytest.importorskip("operad_search.plugin")
    both = [(plugin, "regex-search"), (ranked, "search")]
    assert found(registry_with(*(both if first == "regex" else reversed(both))), "shop[.]get.+s") == [
        "shop.getBooks"
    ]


HOSTILE = ["(a+)+$", "(a|a)*!!", "(.*a){25}", "(a|aa)+$", "(x+x+)+y", "((((a*)*)*)*)*!!", "(?:a?){900}a{900}"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_that_makes_backtracking_engines_hang_ends(pattern: str, registry: OperationRegistry) -> None:
    registry.register_spec(OperationSpec(namespace="long", name="text", description="a" * 1_000_000 + "!"))
    assert set(found(registry, pattern)) <= {*BOOKS, "long.text"}


@pytest.mark.parametrize("pattern", ["(", "(hardcover)(?=x", "((a{100}){100}){100}", r"(a)\1", "\ud800", "\0"])
def test_a_query_that_is_not_a_pattern_is_searched_as_text(pattern: str, registry: OperationRegistry) -> None:
    assert found(registry, pattern) == (["shop.order"] if pattern == "(" else [])


def test_a_description_that_utf_8_cannot_hold_is_searched(registry: OperationRegistry) -> None:
    registry.register_spec(OperationSpec(namespace="odd", name="text", description="\ud800 oddity"))
    assert found(registry, "oddity") == ["odd.text"]


def test_a_query_is_read_up_to_its_bound(registry: OperationRegistry) -> None:
    assert found(registry, "x" * (MAX_QUERY - 6) + "|order" + "e" * 1_000_000) == ["shop.order"]


def test_a_search_stops_when_its_time_is_over(
    registry: OperationRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operad_regex_search.index.MAX_SECONDS", -1.0)
    assert found(registry, "book") == []
