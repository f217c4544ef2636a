"""Records are equal, hash and show themselves as attrs would have them."""

from __future__ import annotations

import json
import pickle
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import ConfigError, OperationContext, OperationSpec
from operad.loading.sources import SourceFailure, SourceState
from operad.plugin import record

TABLES = json.loads(Path(__file__).with_name("records.json").read_text("utf-8"))
"""By kind and module: classes, their arguments, and what else a test needs. Tests are named for the modules, so that
`tools/mutants.py` finds them for changes of lines that run as a module is imported."""


GIVEN = {"SPEC": OperationSpec(namespace="a", name="b"), "CONTEXT": OperationContext()}


def made(module: str, cls: str, values: list[Any], /, **named: Any) -> Any:
    given = [GIVEN.get(value, value) if isinstance(value, str) else value for value in values]
    return getattr(import_module(f"operad.{module}"), cls)(*given, **named)


@attrs.frozen
class ByAttrs:
    name: str
    secret: str = attrs.field(default="s", repr=False)
    note: str = attrs.field(default="", eq=False)
    size: Any = attrs.field(default=None, repr=lambda size: f"<{size}>")


@record
class Ours:
    name: str
    secret: str = attrs.field(default="s", repr=False)
    note: str = attrs.field(default="", eq=False)
    size: Any = attrs.field(default=None, repr=lambda size: f"<{size}>")


@record
class Below(Ours):
    more: int = 1


VALUES: list[dict[str, Any]] = [
    {"name": "a"}, {"name": "b"}, {"name": "a", "secret": "t"}, {"name": "a", "note": "n"}, {"name": "a", "size": []},
]  # fmt: skip


@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("other", VALUES)
def test_a_record_is_equal_to_what_attrs_says_it_is(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (Ours(**one) == Ours(**other)) is (ByAttrs(**one) == ByAttrs(**other))
    if Ours(**one) == Ours(**other) and one.get("size") is None:
        assert hash(Ours(**one)) == hash(Ours(**other))


def test_a_record_shows_what_attrs_shows_and_keeps_the_same_to_itself() -> None:
    for values in VALUES:
        assert repr(Ours(**values)) == repr(ByAttrs(**values)).replace("ByAttrs", "Ours")
    assert "secret" not in repr(Ours("a", "hidden"))
    assert "hidden" not in repr(Ours("a", "hidden"))


def test_a_record_of_another_class_is_another_record() -> None:
    assert Ours("a") != Below("a")
    assert Ours("a") != ByAttrs("a")
    assert Below("a", more=2) != Below("a")
    assert len({Ours("a"), Ours("a"), Below("a")}) == 2


def test_what_attrs_cannot_hash_a_record_cannot() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a", size=[]))


def test_a_record_that_holds_itself_is_shown() -> None:
    held: list[Any] = []
    one = Ours("a", size=held)
    held.append(one)
    assert repr(one) == "Ours(name='a', note='', size=<[...]>)"


def test_a_record_has_no_dictionary_and_survives_copies_and_pickles() -> None:
    one = Ours("a", size=(1, 2))
    assert not hasattr(one, "__dict__")
    assert attrs.evolve(one) == one
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_record_may_be_equal_to_itself_alone() -> None:
    @record(eq=False)
    class Alone:
        name: str

    assert Alone("a") != Alone("a")
    assert repr(Alone("a")).endswith("Alone(name='a')")


def test_equality_and_text_of_its_own_stay() -> None:
    @record
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return other == self.name

        __hash__ = object.__hash__

    assert repr(Named("a")) == "a"
    assert Named("a") == "a"


@pytest.mark.parametrize("module", TABLES["keyword_only"])
def test_what_has_many_options_takes_them_by_keyword_only(module: str) -> None:
    for cls, values in TABLES["keyword_only"][module]:
        with pytest.raises(TypeError, match="positional argument"):
            made(module, cls, values)


@pytest.mark.parametrize("module", TABLES["hidden"])
def test_what_may_be_secret_or_endless_is_not_shown(module: str) -> None:
    for cls, values, named, hidden in TABLES["hidden"][module]:
        shown = repr(made(module, cls, values, **named, **dict.fromkeys(hidden.split(), "s3cr3t")))
        assert re.search(r"\b[A-Z]\w+", shown)
        assert "s3cr3t" not in shown


@pytest.mark.parametrize("module", TABLES["equal_to_itself_alone"])
def test_what_is_one_call_or_one_function_is_equal_to_itself_alone(module: str) -> None:
    for cls, values in TABLES["equal_to_itself_alone"][module]:
        assert len({made(module, cls, values), made(module, cls, values)}) == 2


@pytest.mark.parametrize("module", ["loading.sources"])
def test_sources_in_the_same_state_are_equal_whatever_their_sessions(module: str) -> None:
    state = SourceState(name="a", type="t", status="loaded", session=1)
    assert state == attrs.evolve(state, session=2)
    error = ConfigError("e")
    assert SourceFailure("a", error, again=1) == SourceFailure("a", error, again=2)
    assert state.operations == 0


@pytest.mark.parametrize("module", TABLES["defaults"])
def test_the_defaults_are_the_safe_ones(module: str) -> None:
    for cls, values, named, defaults in TABLES["defaults"][module]:
        one = made(module, cls, values, **named)
        found = {name: getattr(one, name) for name in defaults}
        assert {name: list(it) if isinstance(it, tuple) else it for name, it in found.items()} == defaults
