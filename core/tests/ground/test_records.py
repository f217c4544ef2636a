"""Records are equal, hash and show themselves as attrs would have them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import CallError, ConfigError, Operation, OperationContext, OperationSpec
from operad.config.file import Configuration, PluginOptions, RegistryOptions
from operad.config.sources import SourceOptions
from operad.context import BoundOperation
from operad.loading.source import LoadedSource
from operad.loading.sources import LoadedSources, SourceFailure, SourceState
from operad.observers import CallOutcome, CallRecord, CallReport, Observers
from operad.plugin import Capabilities, Delivery, InterceptedCall, Interceptor, SourceContext, record
from operad.registry.views import Selection


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


SPEC = OperationSpec(namespace="a", name="b")
Cases = dict[str, list[tuple[Callable[..., Any], list[Any], Any]]]
"""By module: a class or a partial of one, positional arguments, and what else a test needs."""
RECORD = ["1", None, "a.b", None, None, 0.0]

KEYWORDS_ONLY: Cases = {
    "config.file": [(PluginOptions, [["a"]], ()), (RegistryOptions, ["cast"], ())],
    "config.sources": [(SourceOptions, ["a"], ())],
    "loading.sources": [(SourceState, ["a", "openapi", "loaded"], ())],
    "operations": [(OperationSpec, ["a", "b"], ()), (Operation, [SPEC, None, None, None, None, None], ())],
    "registry.views": [(Selection, ["*"], ())],
    "sources": [(SourceContext, [None], ())],
    "transports": [(Capabilities, [1], ())],
}


@pytest.mark.parametrize("module", KEYWORDS_ONLY)
def test_what_has_many_options_takes_them_by_keyword_only(module: str) -> None:
    for cls, values, _ in KEYWORDS_ONLY[module]:
        with pytest.raises(TypeError, match="positional argument"):
            cls(*values)


HIDDEN: Cases = {
    "config.file": [(Configuration, [Path("/x")], "tables folders lines")],
    "context": [
        (OperationContext, [], "registry client worker watch credentials state"),
        (partial(BoundOperation, id="a.b"), [], "env"),
    ],
    "loading.source": [(LoadedSource, [1, "owner", 3, 4, 5, 6], "again")],
    "loading.sources": [
        (LoadedSources, [1, 2, 3], "registry"),
        (SourceFailure, ["a", ConfigError("e")], "again"),
        (partial(SourceState, name="a", type="t", status="loaded"), [], "session"),
    ],
    "observers": [(CallRecord, RECORD, "input")],
    "operations": [(Operation, [SPEC, None], "signature pages stream chunks method")],
    "registry.interceptors": [(InterceptedCall, [SPEC, None, OperationContext()], "_checked")],
    "sources": [(partial(SourceContext, plugins=None), [], "registry")],
}


@pytest.mark.parametrize("module", HIDDEN)
def test_what_may_be_secret_or_endless_is_not_shown(module: str) -> None:
    for cls, values, hidden in HIDDEN[module]:
        shown = repr(cls(*values, **dict.fromkeys(hidden.split(), "s3cr3t")))
        assert re.search(r"\b[A-Z]\w+", shown)
        assert "s3cr3t" not in shown


ITSELF_ALONE: Cases = {
    "loading.source": [(LoadedSource, [1, "owner", 3, 4, 5, 6], ())],
    "loading.sources": [(LoadedSources, [1, 2, 3], ())],
    "context": [(OperationContext, [], ()), (BoundOperation, ["env", "a.b"], ())],
    "observers": [
        (CallRecord, RECORD, ()),
        (CallReport, ["log"], ()),
        (CallOutcome, [1.0], ()),
        (Observers, [], ()),
    ],
    "operations": [(Operation, [SPEC, None], ())],
    "registry.interceptors": [(InterceptedCall, [SPEC, None, None, "c"], ()), (Interceptor, [], ())],
}


@pytest.mark.parametrize("module", ITSELF_ALONE)
def test_what_is_one_call_or_one_function_is_equal_to_itself_alone(module: str) -> None:
    for cls, values, _ in ITSELF_ALONE[module]:
        assert len({cls(*values), cls(*values)}) == 2


@pytest.mark.parametrize("module", ["loading.sources"])
def test_sources_in_the_same_state_are_equal_whatever_their_sessions(module: str) -> None:
    state = SourceState(name="a", type="t", status="loaded", session=1)
    assert state == attrs.evolve(state, session=2)
    error = ConfigError("e")
    assert SourceFailure("a", error, again=1) == SourceFailure("a", error, again=2)
    assert state.operations == 0


FLAGS = "balances redelivers detects_no_responders detects_peer_loss authenticates_peer same_process stores"
DEFAULTS: Cases = {
    "config.file": [
        (PluginOptions, [], {"strict": False}),
        (RegistryOptions, [], {"normalize": "cast", "on_mismatch": "warn", "max_threads": 32}),
    ],
    "config.sources": [(SourceOptions, [], {"trusted": False, "exclusive": False})],
    "context": [(OperationContext, [], {"trusted": False})],
    "errors": [(CallError, ["E"], {"undeclared": False, "forwarded": False})],
    "observers": [
        (CallRecord, RECORD, {"is_stream": False, "is_outgoing": False}),
        (CallOutcome, [1.0], {"items": 1}),
    ],
    "operations": [
        (
            partial(OperationSpec, namespace="a", name="b"),
            [],
            {"deprecated": False, "idempotent": False, "unchecked_patterns": False},
        )
    ],
    "registry.interceptors": [(Interceptor, [], {"match": ("*",), "order": 0})],
    "sources": [(partial(SourceContext, plugins=None), [], {"trusted": False})],
    "transports": [
        (Capabilities, [], dict.fromkeys(FLAGS.split(), False)),
        (Delivery, [], {"redelivered": False}),
    ],
}


@pytest.mark.parametrize("module", DEFAULTS)
def test_the_defaults_are_the_safe_ones(module: str) -> None:
    for cls, values, defaults in DEFAULTS[module]:
        made = cls(*values)
        assert {name: getattr(made, name) for name in defaults} == defaults
