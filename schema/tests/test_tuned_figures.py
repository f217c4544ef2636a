"""Bounds and tuned figures without a setting: they were measured, or a page names them. Change them here, too."""

import importlib

import pytest

FIGURES = {
    "bundling": {"_MAX_LEVELS": 200, "_MAX_VALUES": 200_000},
    "characters": {"_LAST": 1_114_111},
    "checking": {"SPARSE": 32},
    "compiling": {"STEPS_OF_A_PART": 15, "MAX_CACHED": 512, "_LONG": 1_000},
    "conjunctions": {"SCALARS": 10},
    "explaining": {"_WIDTH": 80, "_LOOKED_AT": 64},
    "nodes": {"FEW": 64, "MANY": 1_000},
    "patterns": {"FREE": 5_000},
    "scalars": {"MAX_NUMBER": 330},
    "tags": {"_DEEPEST": 8},
    "values": {"MAX_BITS": 14_000, "MAX_PARTS": 1_000_000},
}


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    found = importlib.import_module(f"operad_schema.{module}")
    assert {name: getattr(found, name) for name in FIGURES[module]} == FIGURES[module]
