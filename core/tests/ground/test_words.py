"""Text for messages: suggestions, and any object as bounded text."""

from __future__ import annotations

import json
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from operad.words import did_you_mean, html_json, in_words, json_safe, nearest, printable, text_of


class Word(StrEnum):
    A = "a"


class Level(IntEnum):
    LOW = 1


class Broken(dict[str, Any]):
    def __str__(self) -> str:
        raise SystemExit

    def items(self) -> Any:
        raise RuntimeError


NAMES = [f"n{number:02}" for number in range(20)]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("urll", ["url", "token"], '; did you mean "url"?'),
        ("x", [], "; known: none"),
        ("x", ["b", "a"], "; known: a, b"),
        ("x", NAMES[:16], f"; known: {', '.join(NAMES[:16])}"),
        ("x", NAMES[:17], f"; known: {', '.join(NAMES[:15])} and 2 more"),
    ],
    ids=str,
)
def test_an_unknown_name_is_compared_with_the_known_ones_of_which_fifteen_are_listed(
    name: str, known: list[str], hint: str
) -> None:
    assert did_you_mean(name, known) == hint


def test_the_nearest_name_is_similar_enough() -> None:
    assert nearest("abcd", ["abcx", "abce"]) == "abcx"
    assert nearest("abcd", ["abcx"], cutoff=0.8) is None
    assert nearest("abcde", ["abcxy"]) == "abcxy", "0.6 is similar enough"
    assert nearest("a" * 200, ["a" * 201]) == "a" * 201
    assert nearest("a" * 201, ["a" * 201]) is None, "too long to be compared"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ValueError("why"), "ValueError: why"),
        (ValueError(), "ValueError"),
        (ValueError(Broken()), "ValueError: <ValueError>"),
        (ValueError("x" * 2_000), "ValueError: " + "x" * 2_000),
        (ValueError("x" * 2_001), "ValueError: " + "x" * 2_000 + "…"),
        (ValueError("a\ud800"), "ValueError: a\\ud800"),
    ],
    ids=range(6),
)
def test_an_exception_has_a_text_of_at_most_2_000_characters(value: Exception, text: str) -> None:
    assert in_words(value) == text


def test_an_object_without_a_text_is_named_by_its_class() -> None:
    assert text_of(Broken()) == "<Broken>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("a\nb\x1b[1m\x00", "a\\x0ab\\x1b[1m\\x00"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "…"),
    ],
    ids=range(4),
)
def test_text_for_a_log_is_one_line_of_at_most_200_characters_without_control_characters(
    text: str, shown: str
) -> None:
    assert printable(text) == shown


def test_a_notebook_shows_10_000_characters_of_escaped_json() -> None:
    shown = "<pre>{\n  &quot;é&quot;: &quot;&lt;&quot;,\n  &quot;o&quot;: &quot;{1}&quot;\n}</pre>"
    assert html_json({"é": "<", "o": {1}}) == shown
    assert html_json("x" * 9_998).count("x") == 9_998
    assert html_json("x" * 9_999) == "<pre>&quot;" + "x" * 9_999 + "…</pre>"


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ([None, True, False, 7, 1.5, "a\ud800"], [None, True, False, 7, 1.5, "a\\ud800"]),
        ([float("nan"), float("inf")], ["nan", "inf"]),
        ((1, [2]), [1, [2]]),
        (frozenset({1}), [1]),
        ({1: {None: object}}, {"1": {"None": "<class 'object'>"}}),
        ([Word.A, Level.LOW], ["a", 1]),
        (Broken(), "<Broken>"),
    ],
    ids=range(7),
)
def test_any_value_has_a_copy_that_json_can_represent(value: Any, safe: Any) -> None:
    made = json_safe(value)
    assert made == safe
    assert json.dumps(made) == json.dumps(safe), "of the exact types"
    assert type(json_safe(Word.A)) is str
    assert type(json_safe(Level.LOW)) is int


def test_what_is_below_depth_32_or_after_10_000_containers_becomes_text() -> None:
    deep: Any = "end"
    for _ in range(33):
        deep = [deep]
    made = json_safe(deep)
    for _ in range(32):
        made = made[0]
    assert made == "['end']"
    many = json_safe([[] for _ in range(10_001)])
    assert (many[9_998], many[9_999]) == ([], "[]")
    endless: list[Any] = []
    endless.append(endless)
    assert "[[[...]]]" not in json.dumps(json_safe(endless))[:32]
