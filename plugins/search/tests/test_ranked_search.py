"""Search: the words of id, title, tags and description, ranked; follows what is registered and removed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operad import OperationRegistry, OperationSpec, Plugins
from operad_search import RankedIndex as SearchIndex
from operad_search import plugin
from operad_search.index import words

TABLE = json.loads(Path(__file__).with_name("ranking.json").read_text("utf-8"))


def spec(operation_id: str, description: str = "", **fields: Any) -> OperationSpec:
    namespace, _, name = operation_id.partition(".")
    return OperationSpec(namespace=namespace, name=name, description=description, **fields)


CATALOGUE = [
    spec("github.pulls/create", "Create a pull request", tags=["pulls"]),
    spec("github.pulls/list", "List pull requests"),
    spec("github.issues/create", "Create an issue in a repository"),
    spec("github.repos/get", "Get a repository"),
    spec("petstore.getPetById", "Find a pet by its id", title="Find pet"),
    spec("petstore.addPet", "Add a new pet to the store"),
    spec("mail.send_message", "Send an e-mail message"),
    spec("chat.sendMessage", "Post into a channel"),
]


def ranked() -> OperationRegistry:
    plugins = Plugins()
    plugins.register(plugin, "search")
    return OperationRegistry(plugins)


def search(query: str, limit: int = 10) -> list[str]:
    return SearchIndex(CATALOGUE).search(query, limit)


@pytest.mark.parametrize(("text", "expected"), TABLE["words"])
def test_words_are_taken_apart(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


@pytest.mark.parametrize(("query", "first"), TABLE["catalogue"])
def test_the_best_comes_first(query: str, first: str) -> None:
    assert search(query)[0] == first


@pytest.mark.parametrize("query", ["", "   ", "zzz", "---", "\x00", "🦄"])
def test_nothing_found_is_an_empty_list(query: str) -> None:
    assert search(query) == []


def test_the_limit_is_kept() -> None:
    assert len(search("pet create list get", 3)) == 3
    assert search("pet", 0) == []
    assert search("pet", -1) == []


def test_a_removed_operation_is_not_found_and_a_new_one_is() -> None:
    registry = ranked()

    async def handler(input: Any, context: Any) -> None: ...

    for item in CATALOGUE:
        registry.register(item, handler)
    assert registry.search("pet")
    registry.unregister("petstore.addPet")
    registry.register(spec("zoo.feedPet"), handler)
    assert sorted(found.id for found in registry.search("pet")) == ["petstore.getPetById", "zoo.feedPet"]
    registry.register(spec("zoo.feedPet", "now about llamas"), handler, replace=True)
    assert [found.description for found in registry.search("llama")] == ["now about llamas"]
    for found in registry.specs():
        registry.unregister(found.id)
    assert registry.search("pet") == []


@given(st.data())
def test_an_index_that_changed_finds_what_a_new_one_finds(data: st.DataObject) -> None:
    """Order apart: weights are those of the time when an operation came."""
    vocabulary = ["get", "list", "pet", "user", "order", "gets", "orders"]
    names = st.lists(st.sampled_from(vocabulary), min_size=1, max_size=4).map("_".join)
    registry = ranked()
    registry.search("warm up")
    live: dict[str, OperationSpec] = {}
    for _ in range(data.draw(st.integers(0, 12))):
        item = spec(f"n.{data.draw(names)}")
        if item.id in live and data.draw(st.booleans()):
            registry.unregister(item.id)
            del live[item.id]
        else:
            registry.register_spec(item, replace=True)
            live[item.id] = item
        if data.draw(st.booleans()):
            registry.search("get")
    query = data.draw(st.sampled_from([*vocabulary, "get pet", "order user"]))
    found = {item.id for item in registry.search(query, 100)}
    assert found == set(SearchIndex(live.values()).search(query, 100))


def many(count: int) -> SearchIndex:
    chance = random.Random(1)
    verbs, nouns = ["get", "list", "create", "delete"], ["user", "order", "invoice", "file", "issue"]
    items = []
    for number in range(count):
        verb, noun, other = chance.choice(verbs), chance.choice(nouns), chance.choice(nouns)
        items.append(spec(f"n{number % 7}.{verb}_{noun}_{number}", f"{verb} the {noun} of one {other}"))
    return SearchIndex(items)


@pytest.mark.parametrize(
    "query", ["get user", "create invoice of order", "list", "the of one", "n3 delete file issue"]
)
def test_taking_frequent_words_short_finds_what_adding_everything_up_finds(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = many(3000)
    monkeypatch.setattr("operad_search.index._FEW", 50)
    short = index.search(query, 5)
    monkeypatch.setattr("operad_search.index._FEW", 10**9)
    whole = index.search(query, 3000)
    assert short == whole[:5]


def test_a_query_adds_up_a_bounded_number_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    index = many(3000)
    monkeypatch.setattr("operad_search.index._FEW", 50)
    monkeypatch.setattr("operad_search.index._BUDGET", 2000)
    found = index.search("get the user of one order n3", 5)
    assert len(found) == 5
    assert all("get_" in operation_id for operation_id in found)


# --- what people mean --------------------------------------------------------------------------------


def indexed(**titles: str) -> SearchIndex:
    return SearchIndex(
        OperationSpec(namespace="x", name=name, title=title, description=f"{title}. " + "More words. " * 60)
        for name, title in titles.items()
    )


PULLS = {
    "stack_create": "Create a pull request stack for a team",
    "pulls_create": "Create a pull request",
    "pulls_list": "List pull requests",
    "reaction_create": "Create a reaction for a pull request review comment",
    "members_remove": "Remove a member",
    "customers_create": "Create a customer",
}


@pytest.mark.parametrize(("query", "best"), TABLE["pulls"])
def test_the_name_that_says_the_query_and_nothing_else_comes_first(query: str, best: str) -> None:
    assert indexed(**PULLS).search(query, 3)[0] == f"x.{best}"


def test_a_query_of_stop_words_alone_finds_what_holds_them() -> None:
    assert indexed(who_am_i="Who am I", other="Else").search("who am i", 5) == ["x.who_am_i"]
    assert indexed(**PULLS).search("the of", 5) == []


def test_a_word_beyond_the_head_of_a_description_still_counts() -> None:
    index = SearchIndex([OperationSpec(namespace="x", name="a", description="word " * 100 + "zebra")])
    assert index.search("zebra", 1) == ["x.a"]


def test_a_typo_in_a_word_of_four_letters_is_found_and_in_one_of_three_is_not() -> None:
    assert search("isue")[0] == "github.issues/create"
    index = SearchIndex([spec("a.fork", "Fork it"), spec("a.get", "Get it")])
    assert index.search("fokr", 1) == ["a.fork"]
    assert index.search("gte", 1) == []


def test_of_two_that_say_the_same_the_shorter_one_comes_first_whatever_their_order() -> None:
    short, long = spec("a.x", "zebra"), spec("b.x", "zebra " + "of many other words " * 5)
    for items in ([short, long], [long, short]):
        assert SearchIndex(items).search("zebra", 2) == ["a.x", "b.x"]


def test_a_name_that_says_the_query_comes_before_a_text_that_repeats_it() -> None:
    repeats = spec("n.other", "merge pull, merge pull, merge pull, merge pull", tags=["merge pull", "pull merge"])
    index = SearchIndex([repeats, spec("n.merge_pull", "Or not. " + "Many other words. " * 20)])
    assert index.search("merge pull", 2) == ["n.merge_pull", "n.other"]
    assert index.search("mergepull", 2) == ["n.merge_pull", "n.other"]


def test_the_last_word_of_a_short_description_counts_as_the_others() -> None:
    index = SearchIndex([spec("a.x", "alpha zebra"), spec("b.x", "zebra alpha")])
    assert index.search("zebra", 2) == ["a.x", "b.x"]
    assert SearchIndex([spec("a.x", "of a zebra"), spec("b.x", "zebra " * 2)]).search("zebra", 1) == ["b.x"]


@pytest.mark.parametrize(("names", "query", "found"), TABLE["names"])
def test_a_query_finds_words_their_beginnings_and_else_typos_and_parts(names: str, query: str, found: str) -> None:
    index = SearchIndex(spec(f"t.{name}") for name in names.split())
    assert index.search(query, 9) == [f"t.{name}" for name in found.split()]


def test_of_many_longer_words_the_shortest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    index = SearchIndex(spec(f"t.{name}") for name in ("abcde", "abcd", "abc"))
    monkeypatch.setattr("operad_search.index._MAX_PREFIXED", 2)
    assert index.search("ab", 5) == ["t.abc", "t.abcd"]
    monkeypatch.setattr("operad_search.index._MAX_PREFIXED", 3)
    assert index.search("ab", 5) == ["t.abc", "t.abcd", "t.abcde"]


def test_words_that_are_added_later_are_found_by_their_beginnings() -> None:
    index = SearchIndex([spec("t.alpha")])
    assert index.search("alp", 5) == ["t.alpha"]
    for name in ("beta", "alpine", "aloe"):
        index.add(spec(f"t.{name}"))
    assert index.search("alp", 5) == ["t.alpha", "t.alpine"]


def test_an_id_is_found_once_and_in_its_last_form() -> None:
    index = SearchIndex([spec("t.alpha"), spec("t.beta")])
    index.add(spec("t.alpha", title="gamma"))
    assert (len(index), index.search("gamma", 5), index.search("alpha", 5)) == (2, ["t.alpha"], ["t.alpha"])
    index.remove("t.alpha")
    index.remove("t.alpha")
    assert (len(index), index.search("alpha", 5)) == (1, [])


@pytest.mark.parametrize(
    ("more", "less", "query"),
    [
        ("w " * 24 + "zebra " + "w " * 5, "w " * 25 + "zebra " + "w " * 4, "zebra"),  # the head of a description
        ("zebra zebra w", "zebra w w", "zebra"),
        ("zebra " + "w " * 20, "zebra " + "w " * 45, "zebra"),
        ("rare", "common", "common rare"),
    ],
)
def test_what_counts_more_comes_first(more: str, less: str, query: str) -> None:
    others = [spec(f"o.n{number}", "common") for number in range(9)]
    for items in ([("a", more), ("b", less)], [("b", less), ("a", more)]):
        index = SearchIndex([*others, *(spec(f"{name}.x", text) for name, text in items)])
        assert index.search(query, 1) == ["a.x"]


def test_no_text_counts_as_longer_than_40_words_and_equals_stay_as_they_came() -> None:
    for first, second in ((60, 200), (200, 60)):
        index = SearchIndex([spec("a.x", "zebra " + "w " * first), spec("b.x", "zebra " + "w " * second)])
        assert index.search("zebra", 2) == ["a.x", "b.x"]


def test_the_namespace_is_a_part_of_the_name_when_the_query_says_it() -> None:
    index = SearchIndex([spec("t.list"), spec("github.list")])
    assert index.search("github list", 5)[0] == "github.list"
    assert index.search("list", 1) == ["t.list"]


SOME = ["alpha", "beta", "gamma", "delta", "list", "get", "user", "users", "create"]
NAMES = st.lists(
    st.lists(st.sampled_from(SOME), min_size=1, max_size=4).map("_".join), min_size=1, max_size=25, unique=True
)
QUERY = st.lists(st.sampled_from(SOME), min_size=1, max_size=3).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(NAMES, QUERY, st.integers(1, 6))
def test_the_short_cut_for_frequent_words_changes_no_result(names: list[str], query: str, limit: int) -> None:
    index = SearchIndex(spec(f"t.{name}") for name in names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("operad_search.index._RANKED", limit)
        exact = index.search(query, limit)
        patch.setattr("operad_search.index._FEW", 0)
        assert index.search(query, limit) == exact


@pytest.mark.parametrize(("few", "budget"), [(4_096, 50_000), (0, 1), (0, 4), (0, 8)])
def test_each_word_beyond_what_is_added_up_still_reorders_the_best(
    few: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operad_search.index._FEW", few)
    monkeypatch.setattr("operad_search.index._BUDGET", budget)
    texts = ["rare common", "rare common usual", "rare", "common usual", "usual", "usual"]
    index = SearchIndex(spec(f"t.{name}", text) for name, text in zip("abcdef", texts, strict=True))
    assert index.search("rare common usual", 2) == ["t.b", "t.a"]
    assert index.search("rare common", 2) == ["t.a", "t.b"]


def test_a_frequent_word_is_looked_up_for_an_operation_that_came_after_all_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("operad_search.index._FEW", 0)
    monkeypatch.setattr("operad_search.index._BUDGET", 1)
    index = SearchIndex([*(spec(f"t.n{number}", "common") for number in range(9)), spec("t.last", "rare")])
    assert index.search("rare common", 1) == ["t.last"]
