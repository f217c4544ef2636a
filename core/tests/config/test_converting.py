"""Values of tables become fields of their types, or an error that says what was expected."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from operad import ConfigError
from operad.config.sources import check_keys
from operad.config.structuring import structure
from operad.plugin import check_options

TABLES = json.loads(Path(__file__).with_name("file.json").read_text("utf-8"))


@attrs.frozen
class Auth:
    kind: Literal["bearer", "basic"] = "bearer"
    token: str | None = None


@dataclasses.dataclass
class Size:
    width: int = 1


@attrs.frozen
class Options:
    auth: Auth = attrs.field(factory=Auth)
    size: Size = attrs.field(factory=Size)
    pair: tuple[int, int] = (0, 0)
    many: tuple[int, ...] = ()
    late: Literal["x"] | list[int] | None = None
    choice: Literal["a", "b"] | int | None = None
    number: int | list[str] | None = None
    numbers: dict[str, int] | list[int] | None = None
    one: Auth | list[str] | None = None
    two: Auth | Size | None = None
    path: Path = Path()
    made: int = attrs.field(default=7, init=False)


TAKEN: list[tuple[str, Any, Any]] = [
    ("auth", Auth("basic"), Auth("basic")),
    ("auth", {"kind": "basic"}, Auth("basic")),
    ("size", {"width": 3}, Size(3)),
    ("path", "a", Path("a")),
    ("pair", [1, 2], (1, 2)),
    ("many", [1, 2, 3], (1, 2, 3)),
    ("late", [1], [1]),
    ("choice", "b", "b"),
    ("choice", 3, 3),
    ("numbers", {"a": 1}, {"a": 1}),
    ("numbers", [1], [1]),
    ("one", {"token": "t"}, Auth(token="t")),
    ("two", {"width": 3}, Size(3)),
]


def test_what_fits_is_converted_and_all_else_is_refused_with_what_was_expected() -> None:
    for key, value, made in TAKEN:
        assert getattr(structure(Options, {key: value}, "here"), key) == made
    for key, value, words in TABLES["values_that_are_refused"]:
        with pytest.raises(ConfigError, match=rf"^{words}.* @ here"):
            structure(Options, {key: value}, "here")


def test_a_field_that_its_class_sets_itself_is_not_an_option() -> None:
    with pytest.raises(ConfigError, match='unknown option "made"'):
        check_options({"made": 3}, Options, where="t")


def _telling(_: Any, __: Any, value: str) -> None:
    raise ValueError(f"<{value}>")


@attrs.frozen
class Told:
    checked: str = attrs.field(validator=_telling)
    other: list[str] = attrs.field(factory=list)
    call: Callable[[], int] = int


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"checked": "abc"}, "<abc> @ x"),
        ({"checked": "abcd"}, "<…> @ x"),
        ({"checked": "abcd-efgh", "other": ["abcd"]}, "<…> @ x"),
    ],
)
def test_values_of_four_characters_and_more_are_left_out_of_a_validator_s_message_the_longest_first(
    table: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        structure(Told, table, "x")
    assert str(caught.value) == words


class Outer:
    """Made twice: with the types of its fields as texts, and with types."""

    auth: Auth | None = None
    count: int = 0


AS_TEXTS = attrs.frozen(type("Texts", (), dict(vars(Outer))))
AS_TYPES = attrs.resolve_types(attrs.frozen(type("Types", (), dict(vars(Outer)))), globals())


NOT_YET_RESOLVED = attrs.frozen(type("Unresolved", (), dict(vars(Outer))))


def test_a_key_of_a_table_inside_a_source_s_table_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r'^unknown key "token"; it is a key of auth @ here$'):
        check_keys(NOT_YET_RESOLVED, {"token": "x"}, "here")


@pytest.mark.parametrize("outer", [AS_TEXTS, AS_TYPES])
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("token", 'unknown key "token"; it is a key of auth @'),
        ("coun", 'unknown key "coun"; did you mean "count"? @'),
        ("zzzz", 'unknown key "zzzz"; known: auth, count @'),
    ],
)
def test_a_key_of_a_table_inside_is_told_where_it_belongs(outer: Any, key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        structure(outer, {key: "x"}, "here")
