"""ECMA-262 patterns: what runs means what it says there, what could backtrack without bound does not run."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad_schema import translating
from operad_schema.characters import property_ranges
from operad_schema.limits import DEFAULT, Limits
from operad_schema.translating import UnsafePatternError, translate
from schema.tests.tables import tables

TABLES = tables("patterns")


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [*TABLES["a_pattern_means_what_it_does_in_ecma_262"], (r"^.*$", ["", "x" * DEFAULT.max_pattern_string], [])],
)
def test_a_pattern_means_what_it_does_in_ecma_262(pattern: str, matches: list[str], others: list[str]) -> None:
    search = translate(pattern).matches
    assert [bool(search(text)) for text in matches] == [True] * len(matches)
    assert [bool(search(text)) for text in others] == [False] * len(others)


@pytest.mark.parametrize(("pattern", "reason"), TABLES["a_pattern_that_is_not_run_says_why"])
def test_a_pattern_that_is_not_run_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(UnsafePatternError, match=reason):
        translate(pattern)


@pytest.mark.parametrize(
    "pattern", ["^a*$", "^(a|b)*$", "^a{0,70000}$", "^(?:a{0,5000}|b)$", r"^[a\u00e9]+$", r"\Ba|^a"]
)
def test_text_of_any_length_is_checked(pattern: str) -> None:
    made = translate(pattern)
    assert made.matches("a" * 5_000)
    assert not made.matches("a" * 4_999 + "!") or pattern == r"\Ba|^a"
    assert not made.matches("!" * 70_001)


@pytest.mark.parametrize("pattern", [r"^[^a]$", r"^.$", r"^\ud83d$", "^(?:[^a]|b)+c?$", r"^(?:\ud83d|b)+c?$"])
def test_a_lone_surrogate_is_a_character(pattern: str) -> None:
    assert translate(pattern).matches("\ud83d")
    assert not translate(pattern).matches("a\ud83d\ude00")


def test_what_cannot_be_run_in_linear_time_runs_if_that_is_asked_for_on_short_text() -> None:
    made = translate(r"^(?=.*\d)(?<x>[a-z\d])(b)?\k<x>\1+$", Limits(max_pattern_string=10), unchecked=True)
    assert made.matches("1111")
    assert not made.matches("aaaa")
    assert not made.matches("1" * 11), "text beyond the bound matches nothing"
    assert translate("^(a+)+$", unchecked=True).matches("a" * 5_000), "what RE2 runs has no such bound"
    with pytest.raises(UnsafePatternError, match="look-behind requires fixed-width"):
        translate("(?<=a*)b", unchecked=True)


def test_without_re2_a_pattern_that_needs_it_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    translating._re2.cache_clear()
    try:
        with pytest.raises(UnsafePatternError, match="it needs google-re2: pip install"):
            translate("^(a+)+$")
        assert translate("^[a-z]+$").matches("b")
    finally:
        monkeypatch.undo()
        translating._re2.cache_clear()
    assert translate("^(a+)+$").matches("a")


@given(st.text(alphabet="ab01(){}[]|*+?^$.,-\\dws:<>=", max_size=20))
def test_every_text_is_translated_or_refused(pattern: str) -> None:
    try:
        source = translate(pattern)
    except UnsafePatternError:
        return
    source.matches("ab01" * 50)


def codes(name: str) -> set[int]:
    ranges = property_ranges(name)
    assert ranges is not None
    assert all(low <= high for low, high in ranges)
    assert list(ranges) == sorted(ranges)
    found = [code for low, high in ranges for code in range(low, high + 1)]
    assert len(found) == len(set(found))
    return set(found)


def test_the_characters_of_a_category_are_all_that_unicode_has() -> None:
    found: dict[str, set[int]] = {}
    for code in range(0x110000):
        found.setdefault(unicodedata.category(chr(code)), set()).add(code)
    for group in "LMNPSZ":
        assert codes(group) == set().union(*(held for name, held in found.items() if name[0] == group))
    for name, short in (("Lu", "Lu"), ("Decimal_Number", "Nd"), ("Control", "Cc"), ("Format", "Cf")):
        assert codes(name) == codes(short) == found[short]
    assert codes("LC") == codes("Cased_Letter") == found["Lu"] | found["Ll"] | found["Lt"]


def test_the_properties_that_are_no_categories() -> None:
    assert property_ranges("Any") == ((0, 0x10FFFF),)
    assert codes("ASCII") == set(range(0x80))
    assert codes("AHex") == codes("ASCII_Hex_Digit") == {ord(char) for char in "0123456789ABCDEFabcdef"}
    assert codes("White_Space") == {code for code in range(0x10000) if chr(code).isspace()} - {*range(0x1C, 0x20)}
    assert property_ranges("Nonsense") is None
    assert property_ranges("l") is None
