"""Search without a plugin counts words; a plugin replaces it by the hook ``operad_search``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from core.tests.kit import registry_of as with_operations
from core.tests.kit import spec as spec_of
from operad import OperationRegistry, OperationSpec, hookimpl
from operad.registry import catalogue
from operad_testing import make_plugin


def spec(operation_id: str, description: str = "", **fields: Any) -> OperationSpec:
    return spec_of(operation_id, description=description, **fields)


CATALOGUE = [
    spec("github.pulls/create", "Create a pull request"),
    spec("github.pulls/list", "List pull requests"),
    spec("petstore.getPetById", "Find a pet by its id", title="Find pet"),
    spec("petstore.addPet", "Add a new pet to the store"),
]


def registry_of(*specs: OperationSpec, **plugins: Any) -> OperationRegistry:
    """Return a registry with specs, and with plugins of which each has this search."""
    made = [make_plugin(name, operad_search=search) for name, search in plugins.items()]
    return with_operations(*specs, plugins=made)


def ids(registry: OperationRegistry, query: str, limit: int = 10) -> list[str]:
    return [found.id for found in registry.search(query, limit)]


def test_the_operation_with_most_words_of_the_query_comes_first() -> None:
    registry = registry_of(*CATALOGUE)
    assert ids(registry, "create pull request") == ["github.pulls/create", "github.pulls/list"]
    assert ids(registry, "FIND pet")[0] == "petstore.getPetById"
    assert ids(registry, "store new")[0] == "petstore.addPet"


def test_a_word_in_an_id_counts_more_than_one_in_a_description() -> None:
    assert ids(registry_of(spec("a.other", "about users"), spec("b.users")), "users") == ["b.users", "a.other"]


@pytest.mark.parametrize(("query", "limit"), [("", 10), ("zzz", 10), ("pet", 0), ("pet", -1)])
def test_nothing_found_is_an_empty_list(query: str, limit: int) -> None:
    assert ids(registry_of(*CATALOGUE), query, limit) == []


def test_the_limit_is_enforced() -> None:
    assert len(ids(registry_of(*CATALOGUE), "pet pull", 3)) == 3


def test_search_follows_added_replaced_and_removed_operations() -> None:
    registry = registry_of(*CATALOGUE)
    assert ids(registry, "llama") == []
    registry.register_spec(spec("zoo.feed", "Feed a llama"))
    assert ids(registry, "llama") == ["zoo.feed"]
    registry.register_spec(spec("zoo.feed", "Feed a camel"), replace=True)
    assert (ids(registry, "llama"), ids(registry, "camel")) == ([], ["zoo.feed"])
    registry.unregister("zoo.feed")
    assert ids(registry, "camel") == []
    for number in range(200):  # more than an index takes before a new one is made
        registry.register_spec(spec(f"zoo.n{number}", "Feed a yak"))
        assert ids(registry, "yak", 1)
    assert len(ids(registry, "yak", 500)) == 200


class Reversed:
    """The search of another plugin: every operation, the last one first."""

    def __init__(self, specs: Iterable[OperationSpec]) -> None:
        self.ids = {spec.id for spec in specs}

    def add(self, spec: OperationSpec) -> None:
        self.ids.add(spec.id)

    def remove(self, operation_id: str) -> None:
        self.ids.discard(operation_id)

    def search(self, query: str, limit: int) -> list[str]:
        return sorted(self.ids, reverse=True)[:limit]


def test_the_search_of_a_plugin_is_used_and_follows_changes() -> None:
    registry = registry_of(*CATALOGUE, p=lambda: Reversed)
    assert ids(registry, "whatever", 2) == ["petstore.getPetById", "petstore.addPet"]
    registry.register_spec(spec("zoo.feed"))
    registry.unregister("petstore.getPetById")
    assert ids(registry, "whatever", 2) == ["zoo.feed", "petstore.addPet"]


def test_of_two_plugins_the_first_that_offers_a_search_is_used_and_ours_comes_last() -> None:
    ours = make_plugin("ours")
    mark = hookimpl(trylast=True)
    vars(ours)["operad_search"] = mark(lambda: pytest.fail("asked although another plugin comes first"))
    made = [ours, make_plugin("no", operad_search=lambda: None), make_plugin("t", operad_search=lambda: Reversed)]
    assert ids(with_operations(*CATALOGUE, plugins=made), "x", 1) == ["petstore.getPetById"]


def test_a_search_that_cannot_be_made_is_logged_and_words_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_of(*CATALOGUE, broken=lambda: 1 / 0)
    assert "division by zero" in caplog.text
    assert ids(registry, "pull") == ["github.pulls/create", "github.pulls/list"]


def test_an_index_that_returns_an_unknown_id_returns_one_operation_less() -> None:
    class Stale(Reversed):
        def search(self, query: str, limit: int) -> list[str]:
            return ["gone.gone", *self.ids]

    assert ids(registry_of(spec("a.b"), p=lambda: Stale), "x") == ["a.b"]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop gets a turn after each operation."""
    monkeypatch.setattr(catalogue, "_STEP", 0.0)


def numbered(count: int) -> OperationRegistry:
    return registry_of(*(spec(f"t.operation_{number}", "alpha " * 50) for number in range(count)))


@pytest.mark.usefixtures("steps")
async def test_the_index_of_a_search_grows_while_the_event_loop_runs() -> None:
    registry, turns = numbered(50), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await registry.prepare_search()
    seen = turns
    await registry.prepare_search()
    assert turns == seen, "the index is there"
    counting.cancel()
    assert seen >= 50
    assert ids(registry, "alpha", 3) == ids(numbered(50), "alpha", 3)


@pytest.mark.usefixtures("steps")
async def test_what_changes_while_the_index_grows_is_found_as_it_is_then() -> None:
    registry = numbered(50)
    growing = asyncio.create_task(registry.prepare_search())
    await asyncio.sleep(0)
    registry.register_spec(spec("t.late", "beta"))
    registry.unregister("t.operation_49")
    assert not growing.done()
    await growing
    assert ids(registry, "beta") == ["t.late"]
    assert ids(registry, "operation_49") == []


@pytest.mark.usefixtures("steps")
async def test_a_search_that_does_not_wait_makes_the_index_itself() -> None:
    registry = numbered(50)
    waiting = [asyncio.create_task(registry.prepare_search()) for _ in range(2)]
    await asyncio.sleep(0)
    assert ids(registry, "operation_7", 1) == ["t.operation_7"]
    await asyncio.gather(*waiting)
    assert ids(registry, "operation_7", 1) == ["t.operation_7"]


class Counted(Reversed):
    """It notes how many operations each index had when it was made."""

    made: list[int]

    def __init__(self, specs: Iterable[OperationSpec]) -> None:
        super().__init__(specs)
        self.made.append(len(self.ids))


@pytest.fixture
def counting() -> OperationRegistry:
    Counted.made = []
    return registry_of(*CATALOGUE, p=lambda: Counted)


@pytest.mark.parametrize(("prepared", "sizes"), [(False, [4, 91, 207]), (True, [0, 91, 207])])
async def test_an_index_is_made_again_after_64_changes_and_a_quarter_of_the_operations(
    counting: OperationRegistry, prepared: bool, sizes: list[int]
) -> None:
    assert ids(counting, "x", 0) == []
    assert Counted.made == [], "nothing was asked for"
    if prepared:
        await counting.prepare_search()
    ids(counting, "x")
    for number in range(210):
        counting.register_spec(spec(f"zoo.n{number}"))
        ids(counting, "x")
    assert Counted.made == sizes


@pytest.mark.usefixtures("steps")
async def test_what_is_removed_takes_the_place_of_nothing_that_is_there(counting: OperationRegistry) -> None:
    growing = asyncio.create_task(counting.prepare_search())
    await asyncio.sleep(0)
    counting.unregister("petstore.getPetById")
    await growing
    assert ids(counting, "x", 1) == ["petstore.addPet"]
    words = registry_of(*CATALOGUE)
    assert ids(words, "find pet", 1) == ["petstore.getPetById"]
    words.unregister("petstore.getPetById")
    assert ids(words, "find pet", 1) == ["petstore.addPet"]


def test_a_search_that_cannot_be_made_leaves_the_place_to_that_of_another_plugin() -> None:
    registry = registry_of(*CATALOGUE, broken=lambda: 1 / 0, p=lambda: Reversed)
    assert ids(registry, "x", 1) == ["petstore.getPetById"]
