"""Records are equal, hash and show themselves as attrs would have them."""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import pytest

from operad.plugin import record


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

    assert repr(Named("a")) == "a"
