"""What a pattern can cost at worst, the bounds on that, and each construct on its own."""

import threading

import pytest

from operad_schema.limits import DEFAULT, Limits
from operad_schema.patterns import FREE, WORK, TooMuchWorkError, Work
from operad_schema.translating import UnsafePatternError, translate


@pytest.mark.parametrize(
    ("pattern", "text", "steps"),
    [
        ("^abc$", "x" * 9, 1),  # one place to begin at, one way
        ("[ab]", "x" * 9, 10),  # any place
        ("na", "banana", 3),  # the places where its first character stands, and one
        ("^[ab]*$", "x" * 9, 10),  # the repeat may give back all
        ("^[ab]*", "x" * 9, 1),  # nothing after it makes it give back
        ("b[ab]*c", "abba", 15),
        ("^(a|b|c)$", "x", 3),
        ("^(a|b)(c|d|e)$", "x", 6),
        ("^a{2,4}$", "x" * 9, 3),
        ("^a{2,40}$", "x" * 9, 10),  # no more ways than the string is long
        ("^a?$", "x" * 9, 2),
        ("^a{3}$", "x" * 9, 1),
        ("^a{1}b+?c$", "x" * 9, 10),
        ("^a|b$", "x" * 9, 20),  # its second branch may begin anywhere
        ("a?b", "aaa", 8),  # it need not begin with its first character
        ("a?b", "xxx", 8),
        ("a(b?c)", "xxx", 2),
        ("a|b", "xxx", 8),
        ("", "xxx", 4),
        ("a{0,1}b", "aaa", 8),
        ("a{1,2}b", "aaa", 8),
        ("a|[ab]*", "xx", 18),
        ("(a)b", "aaa", 4),
        (r"\wb", "aaa", 4),
        ("^(?:[ab]*)$", "xxx", 4),
        ("^x(?:[ab]*)", "xxx", 4),
    ],
)
def test_what_a_match_may_cost_is_counted_by_where_it_may_begin_and_what_it_may_choose(
    pattern: str, text: str, steps: int
) -> None:
    assert translate(pattern).cost(text) == steps


def _of_steps(first: int, second: int) -> str:
    return f"^({'|'.join('a' * first)})({'|'.join('b' * second)})$"


def test_a_pattern_of_as_many_choices_as_are_free_runs_and_one_of_more_does_not() -> None:
    assert translate(_of_steps(50, 100)).is_cheap
    with pytest.raises(UnsafePatternError, match=f"more than {FREE} steps"):
        translate(_of_steps(50, 101))


def test_a_pattern_is_cheap_when_the_longest_string_costs_no_more_than_is_free() -> None:
    assert translate("[ab]c", Limits(max_pattern_string=FREE - 1)).is_cheap
    assert not translate("[ab]c", Limits(max_pattern_string=FREE)).is_cheap
    assert translate("^[ab]*c", Limits(max_pattern_string=FREE - 1)).is_cheap
    assert not translate("^[ab]*c", Limits(max_pattern_string=FREE)).is_cheap


def test_a_string_that_costs_what_is_left_is_matched_and_the_next_one_counts_as_a_match() -> None:
    pattern = translate("^[ab]*(c|d)$", Limits(max_pattern_string=100_000))
    text = "x" * 5_000
    cost = pattern.cost(text)
    assert cost == 10_002
    with WORK.call(2 * cost, 10):
        assert not pattern.matches(text)
        assert WORK.left == cost
        assert not pattern.matches(text)
        assert not WORK.exhausted
        assert pattern.matches(text)
        assert WORK.exhausted
        assert not pattern.matches("x" * 2_499)  # as much as is free is not counted
    with WORK.call(2 * cost, 10):
        assert not WORK.exhausted


def test_a_cheap_pattern_draws_on_nothing() -> None:
    with WORK.call(0, 10):
        assert not translate("^a$").matches("b")
        assert not WORK.exhausted


def test_the_longest_string_that_a_pattern_is_run_on_is_its_bound() -> None:
    pattern = translate("^a+$", Limits(max_pattern_string=10))
    assert not pattern.matches("b" * 10)
    assert pattern.matches("b" * 11)


def test_a_pattern_of_names_never_costs_more_than_is_free() -> None:
    dear = translate("[ab]*(c|d)", Limits(max_pattern_string=4_096))
    assert not dear.is_cheap
    names = dear.of_names()
    assert names.is_cheap
    assert names.longest == 32
    assert names.body == dear.body
    assert dear.longest == 4_096
    assert names.matches("x" * 33)
    assert not names.matches("x" * 32)
    cheap = translate("^a$")
    assert cheap.of_names().longest == cheap.longest == DEFAULT.max_pattern_string
    anchored = translate("^[ab]*(c|d)$", Limits(max_pattern_string=4_096)).of_names()
    assert anchored.longest == 2_048
    for pattern in ("^[ab]*c", "[ab]c"):
        for longest, left in ((FREE - 1, FREE - 1), (FREE, FREE // 2)):
            assert translate(pattern, Limits(max_pattern_string=longest)).of_names().longest == left
    least = translate(_of_steps(24, 50).replace("^", "[xy]"), Limits(max_pattern_string=64)).of_names()
    assert least.longest == 16


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
        assert (work.left, work.steps, work.exhausted) == (7, 5, False)


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
    search = translate(pattern).compiled.search
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
        (r"\k<n>", r"\\k is not supported"),
        (r"\c1", r"\\c is not supported"),
        (r"\cé", r"\\c is not supported"),
        (r"\c", r"\\c is not supported"),
        (r"\1", "back-reference"),
        (r"\pL", "not supported"),
        (r"\p{Nonsense}", r"\\p\{Nonsense\} is not supported"),
        (r"a\p{" + "x" * 40, r"\\p\{x{19} is not supported$"),
        ("(?<1a>b)", "look-around or inline flags"),
        ("(?i:a)", "look-around or inline flags"),
        ("(?<=a)b", "look-around or inline flags"),
        ("(?", "look-around or inline flags"),
        ("+a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a|?", "nothing to repeat"),
        ("(a", r"unbalanced '\('"),
        ("a)b", r"unbalanced '\)'"),
        ("[a-", r"unbalanced '\['"),
        ("(a{1,2})*", "a repeat or alternation under a repeat"),
        ("(a*){2}", "a repeat or alternation under a repeat"),
        ("(a|b){2}", "a repeat or alternation under a repeat"),
        ("^a*b+$", "more than one unbounded repeat"),
        ("a{2,1}", "repeat out of the range 0 to 4096"),
        ("a{4097}", "repeat out of the range 0 to 4096"),
        ("a{4097,}", "repeat out of the range 0 to 4096"),
        ("a{0,4097}", "repeat out of the range 0 to 4096"),
        ("[b-a]", "bad character range"),
        ("x" * 1025, "longer than 1024 characters"),
        ("(" * 21 + ")" * 21, "nested more than 20 deep"),
    ],
)
def test_each_construct_that_is_not_run_is_named(pattern: str, reason: str) -> None:
    with pytest.raises(UnsafePatternError, match=reason):
        translate(pattern)


@pytest.mark.parametrize(
    "pattern", ["x" * 1024, "(" * 20 + ")" * 20, "^a{4096}$", "^a{4096,}$", "^a{0,4096}$", "(a*)?", "(a|b)?"]
)
def test_what_is_just_within_a_bound_runs(pattern: str) -> None:
    translate(pattern)


def test_no_group_captures() -> None:
    assert translate("^(a)(?<b>c)(?:d)$").compiled.groups == 0


def test_an_alternation_under_an_option_may_be_left_out() -> None:
    search = translate("^x(a|b)?$").compiled.search
    assert [bool(search(text)) for text in ("x", "xa", "xb", "xab")] == [True, True, True, False]
