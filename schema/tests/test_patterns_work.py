"""What a pattern can cost at worst, the bounds on that, and each construct on its own."""

import threading

import pytest

from operad_schema.patterns import FREE, WORK, TooMuchWorkError, Work
from operad_schema.translating import UnsafePatternError, translate


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("^abc$", 1),  # one place to begin at, one way
        ("abc", 4),  # any place
        ("^[ab]*$", 2),
        ("^[ab]*cde$", 5),
        ("^x{3}[ab]{1,9}?y{4}$", 9),
        ("^(a|b|c)$", 3),
        ("^(a|b)(c|d|e)$", 6),
        ("^a?b?$", 4),
        ("^(?:ab){2}[cd]+$", 6),
        ("^(?:ab)*$", 3),
        ("^(a|bc)[de]*$", 10),
        ("a|^b", 6),  # its first branch may begin anywhere
        ("^a{1}b+?c$", 4),
        ("", 1),
    ],
)
def test_what_a_match_may_take_for_each_character_decides_what_runs_a_pattern(pattern: str, steps: int) -> None:
    made = translate(pattern)
    assert (made.weight, made.of_bytes) == (steps, False)


@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]*c",  # may begin anywhere, and repeats
        "^a*b*$",
        "^(a|b)*$",
        "^(a|b){50}$",
        "^(?:a?){50}$",
        "^(?:a{1,2}){3}$",
        "^(?:a*)?b*$",
        "^" + "a?" * 8 + "$",
        "^[ab]*" + "a" * 200 + "$",
        "x" * 200,
    ],
)
def test_a_pattern_that_could_backtrack_runs_where_nothing_does(pattern: str) -> None:
    assert translate(pattern).of_bytes


def test_text_that_costs_what_is_left_is_matched_and_the_next_one_ends_the_call() -> None:
    pattern = translate("^(a|b)*c$")
    text = "x" * FREE
    cost = pattern.weight * len(text)
    assert cost > FREE
    with WORK.call(2 * cost, 10):
        assert not pattern.matches(text)
        assert WORK.left == cost
        assert not pattern.matches(text)
        assert not pattern.matches("x")  # as much as is free is not counted
        with pytest.raises(TooMuchWorkError):
            pattern.matches(text)
    assert not pattern.matches(text), "outside of a call nothing is counted"


def test_a_call_within_a_call_draws_on_the_outer_ones_budget() -> None:
    work = Work()
    with work.call(100, 10) as outer:
        outer.step(4)
        with work.call(1_000, 1_000):
            assert (work.left, work.steps) == (100, 6)
            work.step(3)
        assert work.steps == 3
        work.step(3)
        with pytest.raises(TooMuchWorkError):
            work.step(1)
    work.step(1_000_000)  # outside of any call nothing is counted
    with work.call(7, 5):
        assert (work.left, work.steps) == (7, 5)


def test_each_thread_has_a_budget_of_its_own() -> None:
    seen = []

    def elsewhere() -> None:
        with WORK.call(5, 5):
            seen.append(WORK.steps)

    with WORK.call(100, 100):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert WORK.steps == 100
    assert seen == [5]


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (r"^\t\n\r\f\v\0$", ["\t\n\r\f\v\0"], ["tnrfv0"]),
        (r"^\cJ\cj$", ["\n\n"], ["JJ"]),
        (r"^\cA\cZ$", ["\x01\x1a"], []),
        (r"^\x0a\u000A\u{a}\u{00000a}$", ["\n\n\n\n"], []),
        (r"^\ud83d\ude00$", ["\U0001f600"], ["\ud83d\ude00"]),
        (r"^[\ud83d\ude00]$", ["\U0001f600"], ["\ud83d"]),
        (r"^\ud800\udc00\udbff\udfff$", ["\U00010000\U0010ffff"], []),
        (r"^\ud83dx$", ["\ud83dx"], []),
        (r"^\ude00\ude00$", ["\ude00\ude00"], []),
        (r"^\u{10FFFF}$", ["\U0010ffff"], []),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"\bcat\b", ["a cat", "cat"], ["cats", "concat"]),
        (r"^\Ba", [], ["a", "ba"]),
        (r"a\B", ["ab"], ["a", "é a"]),
        (r"é\b", [], ["é"]),
        ("^[]$", [], ["", "a", "]"]),
        ("^[^]$", ["a", "\n", "]"], ["", "ab"]),
        (r"^[^\d]$", ["a", "^"], ["1"]),
        (r"^[a^]$", ["a", "^"], ["b"]),
        (r"^[[&&~~||]$", ["[", "&", "~", "|"], ["a"]),
        (r"^[\]a]$", ["]", "a"], ["\\"]),
        (r"^[a\-z]$", ["a", "-", "z"], ["b"]),
        (r"^[\x41-\x43]$", ["B"], ["D"]),
        (r"^[\p{Lu}-z]$", ["A", "-", "z"], ["b"]),
        (r"^\p{Lu}\P{Lu}$", ["Aa", "É1"], ["aA", "AA"]),
        (r"^\p{gc=Lu}\p{General_Category=Nd}$", ["A1"], ["1A"]),
        (r"^\D\W\S$", ["a-b"], ["1-b", "aab", "a- "]),
        ("^.$", ["a", "\x85"], ["\n", "\r", "\u2028", "\u2029", ""]),
        ("^(?:ab){2}$", ["abab"], ["ab", "ababab"]),
        ("^(?<n>ab)$", ["ab"], ["n"]),
        ("^((ab)c)$", ["abc"], ["ab"]),
        ("^a{2,3}$", ["aa", "aaa"], ["a", "aaaa"]),
        ("^a{2,}$", ["aa", "a" * 9], ["a"]),
        ("^a{2}$", ["aa"], ["a", "aaa"]),
        ("^a{0,1}$", ["", "a"], ["aa"]),
        ("^a{2,2}$", ["aa"], ["a", "aaa"]),
        ("^a{,2}$", ["a{,2}"], ["a", "aa"]),
        ("^a{$", ["a{"], []),
        ("^a+?b??$", ["a", "aab"], ["b", ""]),
        ("^(a|)$", ["a", ""], ["b"]),
        (r"^\.\*\^\-$", [".*^-"], ["a*^-"]),
        ("^#~ $", ["#~ "], []),
        ("^a]}$", ["a]}"], []),
        ("", ["", "a"], []),
        ("a|", ["", "b"], []),
    ],
)
def test_each_construct_means_what_it_does_in_ecma_262(
    pattern: str, matches: list[str], others: list[str]
) -> None:
    search = translate(pattern).matches
    assert [text for text in matches if not search(text)] == []
    assert [text for text in others if search(text)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\u{110000}", "no character has the number 0x110000"),
        (r"\x4", r"\\x without its hexadecimal digits"),
        (r"\u004", r"\\u without its hexadecimal digits"),
        ("\\", "ends in a backslash"),
        ("[\\", "ends in a backslash"),
        (r"\k<n>", "a back-reference"),
        (r"\k", r"\\k is not supported"),
        (r"\c1", r"\\c is not supported"),
        (r"\cé", r"\\c is not supported"),
        (r"\c", r"\\c is not supported"),
        (r"\1", "back-reference"),
        (r"\pL", "not supported"),
        (r"\p{Nonsense}", r"\\p\{Nonsense\} is not supported"),
        (r"a\p{" + "x" * 40, r"\\p\{x{19} is not supported$"),
        ("(?<1a>b)", "inline flags are not supported"),
        ("(?i:a)", "inline flags are not supported"),
        ("(?<=a)b", "look-around"),
        ("(?", "inline flags are not supported"),
        ("+a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a|?", "nothing to repeat"),
        ("(a", r"unbalanced '\('"),
        ("a)b", r"unbalanced '\)'"),
        ("[a-", r"unbalanced '\['"),
        ("a{2,1}", "numbers out of order in a repeat"),
        ("[b-a]", "bad character range"),
        ("x" * 1025, "longer than 1024 characters"),
        ("(" * 21 + ")" * 21, "nested more than 20 deep"),
    ],
)
def test_each_construct_that_is_not_run_is_named(pattern: str, reason: str) -> None:
    with pytest.raises(UnsafePatternError, match=reason):
        translate(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["x" * 1024, "(" * 20 + ")" * 20, "^a{4096}$", "^a{4096,}$", "^a{0,4096}$", "(a*)?", "(a|b)?", "a{20000}b"],
)
def test_what_is_just_within_a_bound_runs(pattern: str) -> None:
    translate(pattern)


def test_an_alternation_under_an_option_may_be_left_out() -> None:
    search = translate("^x(a|b)?$").matches
    assert [bool(search(text)) for text in ("x", "xa", "xb", "xab")] == [True, True, True, False]
