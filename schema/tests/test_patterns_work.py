"""What a pattern can cost at worst, the bounds on that, and each construct on its own."""

import threading

import pytest

from operad_schema.patterns import WORK, TooMuchWorkError, Work
from operad_schema.translating import UnsafePatternError, translate
from schema.tests.tables import tables

TABLES = tables("patterns_work")


@pytest.mark.parametrize(
    ("pattern", "steps"), TABLES["what_a_match_may_take_for_each_character_decides_what_runs_a_pattern"]
)
def test_what_a_match_may_take_for_each_character_decides_what_runs_a_pattern(pattern: str, steps: int) -> None:
    made = translate(pattern)
    assert (made.weight, made.of_bytes) == (steps, False)


@pytest.mark.parametrize(("pattern", "matched", "others"), TABLES["patterns_that_only_python_runs_mean_the_same"])
def test_patterns_that_only_python_runs_mean_the_same(pattern: str, matched: list[str], others: list[str]) -> None:
    made = translate(pattern, unchecked=True)
    assert not made.of_bytes
    assert [text for text in [*matched, *others] if made.matches(text)] == matched


@pytest.mark.parametrize("pattern", TABLES["a_pattern_that_could_backtrack_runs_where_nothing_does"])
def test_a_pattern_that_could_backtrack_runs_where_nothing_does(pattern: str) -> None:
    assert translate(pattern).of_bytes


def test_text_that_costs_what_is_left_is_matched_and_the_next_one_ends_the_call() -> None:
    pattern = translate("^(a|b)*c$")
    text = "x" * 5_000
    cost = pattern.weight * len(text)
    with WORK.call(2 * cost, 10):
        assert not pattern.matches(text)
        assert WORK.left == cost
        assert not pattern.matches(text)
        free = "x" * (5_000 // pattern.weight)
        assert not pattern.matches(free)  # as much as is free is not counted
        with pytest.raises(TooMuchWorkError):
            pattern.matches(f"{free}x")
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
        *TABLES["each_construct_means_what_it_does_in_ecma_262"],
        (r"^\ud83d\ude00$", ["\U0001f600"], ["\ud83d\ude00"]),
    ],
)
def test_each_construct_means_what_it_does_in_ecma_262(
    pattern: str, matches: list[str], others: list[str]
) -> None:
    search = translate(pattern).matches
    assert [text for text in matches if not search(text)] == []
    assert [text for text in others if search(text)] == []


@pytest.mark.parametrize(("pattern", "reason"), TABLES["each_construct_that_is_not_run_is_named"])
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
