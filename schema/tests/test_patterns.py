"""ECMA-262 patterns: what runs means what it says there, what could backtrack without bound does not run."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad_schema.characters import property_ranges
from operad_schema.limits import DEFAULT
from operad_schema.translating import UnsafePatternError, translate


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("^a$", ["a"], ["a\n", "b"]),
        (r"^\d+$", ["12"], ["٣", "x"]),
        (r"^[\w-.]{2}$", ["a-", "._"], ["a", "é."]),
        (r"^[a-\d]$", ["a", "-", "5"], ["b"]),
        (r"^[+--x]$", ["+", ",", "-", "x"], ["a", "."]),
        (r"^[-a]$", ["-", "a"], ["b"]),
        (r"^[a-]$", ["-", "a"], ["b"]),
        (r"^[\d-z]$", ["-", "z", "1"], ["y"]),
        (r"^[a-c-e]$", ["a", "c", "-", "e"], ["d"]),
        (r"^\u0041\x42$", ["AB"], ["ab"]),
        (r"^[$]\/$", ["$/"], ["/"]),
        (r"^(?<year>\d{4})-\d{2}$", ["2024-05"], ["24-05"]),
        (r"^[^@\s]+@x$", ["me@x"], ["@x"]),
        (r"a|^b{2,}", ["xa", "bbb"], ["b"]),
        (r"^x{a}$", ["x{a}"], ["xa"]),
        (r"^(jan|feb)-(1|2)$", ["feb-2"], ["mar-1"]),
        (r"^.*$", ["", "x" * DEFAULT.max_pattern_string], []),
        (r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", ["0" * 8 + "-0000" * 3 + "-" + "0" * 12], ["0"]),
    ],
)
def test_a_pattern_means_what_it_does_in_ecma_262(pattern: str, matches: list[str], others: list[str]) -> None:
    search = translate(pattern).compiled.search
    assert [bool(search(text)) for text in matches] == [True] * len(matches)
    assert [bool(search(text)) for text in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a+)+", "under a repeat"),
        ("(a|b)*", "under a repeat"),
        ("a*b*", "more than one unbounded"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "back-reference"),
        (r"\p{Script=Latin}", "not supported"),
        ("a?" * 30, "steps"),
        ("(", "unbalanced"),
        ("a)", "unbalanced"),
        ("[", "unbalanced"),
        ("*", "nothing to repeat"),
        ("a{5,2}", "range"),
        ("x" * 2000, "longer than"),
        ("(" * 50 + ")" * 50, "nested"),
    ],
)
def test_a_pattern_that_is_not_run_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(UnsafePatternError, match=reason):
        translate(pattern)


def test_a_string_beyond_the_bound_counts_as_a_match() -> None:
    assert translate("^a$").matches("b" * (DEFAULT.max_pattern_string + 1))
    assert not translate("^a$").matches("b" * DEFAULT.max_pattern_string)


@given(st.text(alphabet="ab01(){}[]|*+?^$.,-\\dws:<>=", max_size=20))
def test_every_text_is_translated_or_refused(pattern: str) -> None:
    try:
        source = translate(pattern)
    except UnsafePatternError:
        return
    source.compiled.search("ab01" * 50)


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
