"""Tables of plain values become options without the converter, which is slow to import; with the same outcome."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

import attrs
import pytest

from operad import ConfigError
from operad.config.structuring import structure


@attrs.frozen
class Options:
    spec: dict[str, Any] | str | os.PathLike[str]
    numbers: dict[str, int | str | bool] | None = None
    kind: Literal["str", "int"] | None = None
    size: int | float = 1
    words: list[str] | None = None
    pairs: dict[str, str] = attrs.field(factory=dict)
    flag: bool = False


def test_a_text_where_a_text_may_stand_beside_other_types_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "operad.config.converting", None)
    assert structure(Options, {"spec": "a.json", "size": 2}, "[t]") == Options("a.json", size=2)


def test_lists_and_tables_of_texts_are_taken_and_stay_their_givers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "operad.config.converting", None)
    words, pairs = ["a"], {"b": "c"}
    for options in (Options, attrs.resolve_types(attrs.frozen(type("Resolved", (Options,), {})))):
        made = structure(options, {"spec": "a.json", "words": words, "pairs": pairs, "flag": True}, "[t]")
        assert (made.words, made.pairs) == (words, pairs)
        assert made.words is not words
        assert made.pairs is not pairs


@pytest.mark.parametrize("table", [{"words": ["a", 1]}, {"words": "a"}, {"pairs": {"b": 1}}, {"pairs": ["b"]}])
def test_lists_and_tables_of_anything_else_are_judged_by_the_converter(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"expected"):
        structure(Options, {"spec": "a.json", **table}, "[t]")


@pytest.mark.parametrize(
    "table", [{"numbers": "text"}, {"numbers": True}, {"kind": "float"}, {"kind": 1}, {"size": "1"}]
)
def test_a_value_that_only_a_parameter_of_a_type_names_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        structure(Options, {"spec": "a.json", **table}, "[t]")


def test_a_choice_is_left_to_the_converter() -> None:
    assert structure(Options, {"spec": {"a": 1}, "kind": "str"}, "[t]") == Options({"a": 1}, kind="str")
