"""Bounds and tuned figures without a setting: they were measured, or a page tells them, so who changes one does it here,
too, and says why."""

import importlib

import attrs
import pytest

from operad.calls.offers import Offer
from operad.registry.loading import _LoadedSource
from operad.registry.pipeline import ResultPipeline
from operad.schemas.likeness import Shown

FIGURES = {
    "schemas.bundling": {"_MAX_LEVELS": 200, "_MAX_VALUES": 200_000, "_MAX_BITS": 14_000},
    "schemas.characters": {"_LAST": 1_114_111},
    "schemas.checking": {"SPARSE": 32},
    "schemas.compiling": {"STEPS_OF_A_PART": 15, "MAX_CACHED": 512, "_LONG": 1000},
    "schemas.conjunctions": {"SCALARS": 10},
    "schemas.explaining": {"_WIDTH": 80, "_LOOKED_AT": 64},
    "schemas.nodes": {"FEW": 64, "MANY": 1000},
    "schemas.patterns": {"FREE": 5000},
    "schemas.scalars": {"MAX_NUMBER": 330},
    "schemas.tags": {"_DEEPEST": 8},
    "schemas.values": {"MAX_BITS": 14_000, "MAX_PARTS": 1_000_000},
    "registry.deadline": {"_DROPPED": 1000, "_RESOLUTION": 1e-06},
    "registry.execution": {"_MEANT": 3, "_MEANT_OF": 2000},
    "registry.handles": {"_LISTED": 100},
    "calls.answers": {"_AGAIN": 1.0, "_MAX_PEERS": 10_000, "_PATIENCE": 2.0, "_MAX_LARGE": 1000},
    "calls.flow": {"LEAST": 1024, "MOST": 65_536, "_MAX_LARGE": 1000, "_PATIENCE": 2.0},
    "calls.following": {"RETRY": 5.0, "_AT_ONCE": 500},
    "calls.inprocess": {"_MAX_DELIVERIES": 4096},
    "calls.lateness": {
        "_PERIOD": 60.0,
        "_MAX_PEERS": 10_000,
        "_SETTLING": 1.0,
        "_SLACK": 0.25,
        "LONGEST": 10000000000.0,
        "LATEST": 1000000000000000.0,
    },
    "calls.listing": {"MAX_VIA": 8, "_PAGE": 200, "_LARGEST_PAGE": 1000},
    "calls.memory": {"_KEPT": 16_777_216},
    "calls.pending": {"MAX_ORPHANS": 10_000, "MAX_ANSWERED": 10_000, "_CLOSING": 5.0},
    "calls.remote": {
        "_SETTLE": 0.1,
        "_OFTEN": 2.0,
        "_MANY": 10,
        "_WITHIN": 20.0,
        "_DESCRIBING": 1.0,
        "_DESCRIBE_AGAIN": 30.0,
        "_MAX_PAGES": 1000,
        "_SHARE": 20,
    },
    "calls.reports": {
        "_LONGEST": 200,
        "_BURST": 20,
        "_A_SECOND": 1.0,
        "_ALL_BURST": 200,
        "_ALL_A_SECOND": 10.0,
        "_REMEMBERED": 1000,
    },
    "calls.requests": {"LARGE": 65_536},
    "calls.retries": {"_FIRST_PAUSE": 0.05, "_LONGEST_PAUSE": 2.0, "_ABSENT": 5.0, "_YOUNG": 10.0},
    "calls.served": {"MAX_RECENT": 10_000, "_REMEMBERED": 60_000, "_NOTICE_AFTER": 0.05, "_TICK": 0.25},
    "calls.serving": {"_BREATH": 8, "_CREDIT_BREATH": 256},
    "calls.stream": {"_MIN_BUFFER": 1024},
    "calls.unusable": {"_LARGEST": 65_536},
}


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    found = importlib.import_module(f"operad.{module}")
    assert {name: getattr(found, name) for name in FIGURES[module]} == FIGURES[module]


RECORDS = (
    "calls.config", "calls.settings", "registry.interceptors", "registry.loading",
    "schemas.limits", "schemas.records",
)  # fmt: skip


@pytest.mark.parametrize("module", RECORDS)
def test_no_equality_or_text_is_compiled_for_a_record(module: str) -> None:
    """`Record` and `Shown` have them once: compiling them for each is half of what making a class takes."""
    found = importlib.import_module(f"operad.{module}")
    made = [one for one in vars(found).values() if isinstance(one, type) and one.__module__ == found.__name__]
    records = [one for one in made if attrs.has(one) and issubclass(one, Shown)]
    assert records
    assert [one for one in records if not {"__eq__", "__repr__"}.isdisjoint(vars(one))] == []


@pytest.mark.parametrize(
    "made",
    [Offer, _LoadedSource, ResultPipeline],
    ids=["calls.offers", "registry.loading", "registry.pipeline"],
)
def test_what_is_known_by_identity_is_equal_to_itself_alone(made: type) -> None:
    assert "__eq__" not in vars(made)
    assert ("__repr__" in vars(made)) is (made not in (_LoadedSource, ResultPipeline))
