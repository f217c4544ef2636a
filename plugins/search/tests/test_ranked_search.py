"""Search: the words of id, title, tags and description, ranked; follows what is registered and removed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad import OperationRegistry, OperationSpec, Plugins
from operad_search import RankedIndex as SearchIndex
from operad_search import plugin
from operad_search.index import words


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getPetById", ["get", "pet", "by", "id"]),
        ("HTTPServerError", ["http", "server", "error"]),
        ("send_message", ["send", "message"]),
        ("pulls/create-review.comment", ["pull", "create", "review", "comment"]),
        ("repositories classes status addresses2", ["repository", "classe", "status", "addresse", "2"]),
        ("Größe naïve", ["grösse", "naïve"]),
        ("--- ///", []),
    ],
)
def test_words_are_taken_apart(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create pull request", "github.pulls/create"),
        ("get pet", "petstore.getPetById"),
        ("new pet", "petstore.addPet"),
        ("list pulls", "github.pulls/list"),
        ("PULLS/CREATE", "github.pulls/create"),
        ("petstore.addPet", "petstore.addPet"),
        ("send message to channel", "chat.sendMessage"),
        ("mess mail", "mail.send_message"),
        ("repo", "github.repos/get"),
        ("sendmessage mail", "mail.send_message"),
    ],
)
def test_the_best_comes_first(query: str, first: str) -> None:
    assert search(query)[0] == first


def test_a_word_that_only_begins_like_the_query_counts_less() -> None:
    index = SearchIndex([spec("a.petition", "x"), spec("b.pet", "x")])
    assert index.search("pet", 10) == ["b.pet", "a.petition"]


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


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create pull request", "pulls_create"),
        ("Create a pull request", "pulls_create"),
        ("open a pullrequest", "pulls_create"),
        ("list pull requests", "pulls_list"),
        ("listPullRequests", "pulls_list"),
        ("create pull reqest", "pulls_create"),
        ("custmer create", "customers_create"),
        ("craete customer", "customers_create"),
    ],
)
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


def test_a_query_of_one_letter_finds_that_word_alone() -> None:
    index = SearchIndex([spec("plot.x", "Draw x"), spec("plot.xy", "Draw xyz")])
    assert index.search("x", 5) == ["plot.x"]
    assert index.search("q", 5) == []


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


def test_a_word_that_only_begins_like_the_query_is_found_by_two_letters() -> None:
    index = SearchIndex([spec("a.zebra")])
    assert index.search("ze", 1) == ["a.zebra"]
    assert index.search("z", 1) == []
