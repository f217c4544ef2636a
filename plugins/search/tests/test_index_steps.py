"""The ranking of operations piece by piece: words, weights, names, and the short cuts that change no answer."""

import math
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operad import OperationSpec
from operad_search import index as search
from operad_search.index import RankedIndex as SearchIndex
from operad_search.index import words


def best(scores, limit):
    return search._best(scores, limit)


def words_of(one, *args):
    return one._words(*args)


def matches(one, *args):
    return one._matches(*args)


def parts_of(one, *args):
    return one._split(*args)


def share_of_name(one, *args):
    return one._named(*args)


def spec(name, **more):
    return OperationSpec(namespace="t", name=name, type="query", **more)


def index_of(*specs):
    return SearchIndex([one if isinstance(one, OperationSpec) else spec(one) for one in specs])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("listPullRequests", ["list", "pull", "request"]),
        ("list_pull-requests/v2", ["list", "pull", "request", "v", "2"]),
        ("HTTPServer parseJSON", ["http", "server", "parse", "json"]),
        ("policies dies ies", ["policy", "die", "ies"]),
        ("flies lies", ["fly", "lie"]),
        ("class status this bus gas cats", ["class", "status", "this", "bus", "gas", "cat"]),
        ("Straßen ÜBER", ["strassen", "über"]),
        ("pets.Größes", ["pet", "grösse"]),
        ("", []),
        ("__ -- ..", []),
    ],
)
def test_the_words_of_a_text(text, found):
    assert list(words(text)) == found


def test_one_edit_is_an_insertion_a_deletion_a_replacement_or_a_swap():
    made = search._one_edit("abcd")
    assert {"bcd", "acd", "abd", "abc"} <= made
    assert {"bacd", "acbd", "abdc"} <= made
    assert {"xbcd", "axcd", "abxd", "abcx"} <= made
    assert {"xabcd", "axbcd", "abcdx", "zabcd"} <= made
    assert not {"cabd", "ab", "abcdxx", "xxcd", "dbca"} & made
    assert search._one_edit("abc") == set()
    assert {len(word) for word in made} == {3, 4, 5}


def test_a_typo_is_sought_only_where_nothing_else_fits():
    found = index_of("create", "crate")
    assert matches(found, "craete") == [("crate", 0.5), ("create", 0.5)]
    assert matches(found, "creat") == [("create", 0.6 * 5 / 6)]
    assert matches(found, "crat") == [("crate", 0.6 * 4 / 5)]
    assert matches(found, "zzzz") == []
    assert matches(index_of("abc"), "abd") == [], "three letters are too few"


def test_a_word_stands_for_itself_and_its_beginnings():
    found = index_of("delete", "deleted", "deletion", "remove", "x")
    assert matches(found, "delete") == [("delete", 1.0), ("deleted", 0.6 * 6 / 7)]
    assert matches(found, "x") == [("x", 1.0)]
    assert matches(found, "d") == [], "one letter begins too much"
    assert [word for word, _ in matches(found, "de")] == ["delete", "deleted", "deletion"]


def test_of_many_longer_words_the_shortest_count(monkeypatch):
    monkeypatch.setattr(search, "_MAX_PREFIXED", 2)
    found = index_of("abcde", "abcd", "abc")
    assert [word for word, _ in matches(found, "ab")] == ["abc", "abcd"]
    by_alphabet = index_of("abaaa", "abz")
    assert [word for word, _ in matches(by_alphabet, "ab")] == ["abaaa", "abz"], (
        "as many as may be stay as they are"
    )
    two = index_of("abcde", "abcd")
    assert [word for word, _ in matches(two, "ab")] == ["abcd", "abcde"]


def test_words_that_are_added_later_are_found_too():
    found = index_of("alpha")
    assert found.search("alp", 5) == ["t.alpha"]
    found.add(spec("alpine"))
    assert found.search("alp", 5) == ["t.alpha", "t.alpine"]
    assert found._vocabulary == sorted(found._vocabulary)


def test_words_written_together_are_taken_apart_at_the_last_place():
    found = index_of("pull", "request", "re", "quest", "pullre")
    assert parts_of(found, "pullrequests") == ("pullre", "quest")
    assert parts_of(found, "requests") == ("re", "quest")
    assert parts_of(index_of("ab", "cd", "c"), "abcd") == ("ab", "cd")
    assert parts_of(index_of("a", "bcd", "abc", "d"), "abcd") == (), "a letter is no word"
    assert parts_of(found, "xrequest") == ()
    assert parts_of(found, "requestx") == ()
    assert index_of("pull_request").search("pullrequests", 5) == ["t.pull_request"]


def test_a_description_counts_less_after_its_first_25_words():
    text = " ".join(f"w{number}" for number in range(30))
    rows = list(search._fields(spec("n", title="T", description=text, tags=("a", "b"))))
    assert rows[0] == ("t.n", 3.0)
    assert rows[1] == ("T", 3.0)
    assert (rows[2][0].split(), rows[2][1]) == (text.split()[:25], 1.0)
    assert (rows[3][0].split(), rows[3][1]) == (text.split()[25:], 0.25)
    assert rows[4:] == [("a", 1.0), ("b", 1.0)]
    assert list(search._fields(spec("n"))) == [("t.n", 3.0)]


def test_the_weight_of_a_word_is_its_saturated_count_by_the_length_of_all():
    weights = index_of(spec("only"))._weights["only"]
    norm = 1.2 * (1 - 0.5 + 0.5 * 2 / 20)
    assert list(weights) == [int(255 * 3 / (3 + norm))]
    twice = index_of(spec("only", title="only"))._weights["only"]
    assert list(twice) == [int(255 * 6 / (6 + 1.2 * (0.5 + 0.5 * 3 / 20)))]
    long = " ".join(["filler"] * 24 + ["rare"] + ["filler"] * 200)
    rare = index_of(spec("n", description=long))._weights["rare"]
    assert list(rare) == [int(255 * 1 / (1 + 1.2 * (0.5 + 0.5 * 40 / 20)))]


def test_a_word_weighs_nothing_where_it_is_not():
    postings = search._Postings(array("I", [2, 5]), bytearray([7, 9]))
    assert [postings.weight(document) for document in range(7)] == [0, 0, 7, 0, 0, 9, 0]


def test_what_is_rare_counts_more():
    found = index_of("rare", *[f"common{number}_common" for number in range(9)])
    (rare,) = words_of(found, "rare")
    (common,) = words_of(found, "common")
    assert rare.size == 1
    assert rare.bound == pytest.approx(255 * math.log(1 + (10 - 1 + 0.5) / 1.5))
    assert common.bound == pytest.approx(255 * math.log(1 + (10 - 9 + 0.5) / 9.5))


def test_words_that_say_little_count_only_when_there_are_no_others():
    found = index_of("the_list", "thing")
    assert [sorted(word.factors) for word in words_of(found, "the thing")] == [["thing"]]
    assert [sorted(word.factors) for word in words_of(found, "the")] == [["the"]]
    assert found.search("the", 5) == ["t.the_list"]


def test_a_name_that_says_the_query_and_nothing_else_comes_first():
    found = index_of("users", "users_list_all_of_them", spec("a1", title="Users"))
    (word,) = words_of(found, "users")
    assert share_of_name(found, 0, [word]) == 1.0
    assert share_of_name(found, 1, [word]) == pytest.approx(1 / 4)
    assert share_of_name(found, 2, [word]) == 1.0
    assert found.search("users", 5) == ["t.users", "t.a1", "t.users_list_all_of_them"]
    both = list(words_of(found, "users zzz list"))
    assert share_of_name(found, 0, both) < 1.0


def test_the_namespace_is_a_part_of_the_name_when_the_query_says_it():
    found = SearchIndex([OperationSpec(namespace="github", name="list", type="query"), spec("list")])
    assert found.search("github list", 5)[0] == "github.list"
    assert found.search("list", 1) == ["github.list"]


def test_an_id_is_found_once_and_in_its_last_form():
    found = index_of("alpha", "beta")
    found.add(spec("alpha", title="gamma"))
    assert len(found) == 2
    assert found.search("gamma", 5) == ["t.alpha"]
    assert found.search("alpha", 5) == ["t.alpha"]
    found.remove("t.alpha")
    found.remove("t.alpha")
    assert (len(found), found.search("alpha", 5)) == (1, [])


@pytest.mark.parametrize("limit", [0, -1])
def test_nothing_is_asked_for(limit):
    assert index_of("alpha").search("alpha", limit) == []


def test_a_query_without_a_known_word_finds_nothing():
    assert index_of("alpha").search("zzzzzz", 5) == []
    assert index_of("alpha").search("", 5) == []


def test_the_best_are_in_order_and_equals_as_they_came():
    assert best({}, 3) == []
    assert best({3: 1.0, 1: 1.0, 2: 5.0}, 2) == [2, 1]
    assert best({1: 1.0, 2: 5.0, 3: 9.0}, 3) == [3, 2, 1]
    assert best({4: 9.0, 2: 9.0, 1: 1.0}, 3) == [2, 4, 1]
    assert best({3: 1.0, 1: 1.0, 2: 5.0}, 9) == [2, 1, 3]
    assert best({5: 7.0, 1: 1.0, 2: 7.0}, 2) == [2, 5]


NAMES = st.lists(
    st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "list", "get", "user", "users", "create"]), min_size=1, max_size=4)
    .map("_".join),
    min_size=1, max_size=25, unique=True,
)  # fmt: skip
QUERY = st.lists(st.sampled_from(["alpha", "beta", "gamma", "list", "user", "get"]), min_size=1, max_size=3).map(
    " ".join
)


@settings(max_examples=60, deadline=None)
@given(NAMES, QUERY, st.integers(1, 6))
def test_the_short_cut_for_frequent_words_changes_no_answer(names, query, limit):
    found = index_of(*names)
    plain = found.search(query, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_RANKED", limit)
        exact = found.search(query, limit)
        patch.setattr(search, "_FEW", 0)
        assert found.search(query, limit) == exact
    assert sorted(plain) != [] or not exact


@settings(max_examples=60, deadline=None)
@given(NAMES, QUERY, st.integers(1, 4))
def test_scores_are_raised_alike_by_table_and_by_looking_up(names, query, few):
    found = index_of(*names)
    for word in words_of(found, query):
        shares = word._shares()
        assert set(shares) == {number for postings, _ in word.postings for number in postings.documents}
        scores = dict.fromkeys(range(len(names)), 1.0)
        expected = {number: 1.0 + shares.get(number, 0.0) for number in scores}
        word.raise_scores(scores)
        assert scores == expected
        some = dict.fromkeys(range(few), 1.0)
        large = search._Word(word.postings, 10_000, word.bound, word.factors)
        large.raise_scores(some)
        assert some == {number: pytest.approx(1.0 + shares.get(number, 0.0)) for number in range(few)}
        added = dict.fromkeys(range(len(names)), 1.0)
        word.add_to(added)
        assert added == expected
        empty = {}
        word.add_to(empty)
        assert empty == shares


def test_words_beyond_the_budget_only_reorder_the_best(monkeypatch):
    found = index_of(*[f"user_n{number}" for number in range(30)], "rare_user", "rare_thing")
    assert found.search("rare user", 40)[:2] == ["t.rare_user", "t.rare_thing"]
    monkeypatch.setattr(search, "_FEW", 10)
    monkeypatch.setattr(search, "_BUDGET", 5)
    assert found.search("rare user", 2) == ["t.rare_user", "t.rare_thing"]
    monkeypatch.setattr(search, "_BUDGET", 40)
    monkeypatch.setattr(search, "_FEW", 100)
    assert len(found.search("rare user", 40)) == 32


def test_ranks_fall_with_the_share_of_the_query_that_is_said():
    found = index_of("pull_request_create", "pull_create", "create", "request")
    ranked = found.search("create pull request", 4)
    assert ranked[0] == "t.pull_request_create"
    assert ranked[1] == "t.pull_create"
    scores = [
        share_of_name(found, int(number), list(words_of(found, "create pull request"))) for number in range(4)
    ]
    assert all(high > low for high, low in pairwise([scores[0], scores[1], min(scores[2:])]))


def test_what_a_name_says_counts_twice_the_best_score(monkeypatch):
    found = index_of("alpha", spec("x", description="alpha"))
    assert found.search("alpha", 2) == ["t.alpha", "t.x"]
    monkeypatch.setattr(found.__class__, "_named", lambda self, document, query: 0.3 * document)
    assert found.search("alpha", 2) == ["t.x", "t.alpha"]
    monkeypatch.setattr(found.__class__, "_named", lambda self, document, query: 0.1 * document)
    assert found.search("alpha", 2) == ["t.alpha", "t.x"]


@pytest.mark.parametrize(("few", "budget"), [(4_096, 50_000), (0, 1), (0, 4), (0, 8)])
def test_each_word_beyond_what_is_added_up_still_reorders_the_best(few, budget, monkeypatch):
    monkeypatch.setattr(search, "_FEW", few)
    monkeypatch.setattr(search, "_BUDGET", budget)
    texts = ["rare common", "rare common usual", "rare", "common usual", "usual", "usual"]
    index = index_of(*(spec(name, description=text) for name, text in zip("abcdef", texts, strict=True)))
    assert index.search("rare common usual", 2) == ["t.b", "t.a"]
    assert index.search("rare common", 2) == ["t.a", "t.b"]
