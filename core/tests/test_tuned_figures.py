"""Bounds and tuned figures without a setting: they were measured, or a page names them. Change them here, too."""

import importlib

import pytest

FIGURES = {
    "registry.execution": {"_MEANT": 3, "_MEANT_OF": 2000},
    "functions.handles": {"_LISTED": 100},
    "config.variables": {"SECRET_LENGTH": 4},
    "context": {"LONGEST_KEY": 255},
    "hookspecs": {"API_VERSION": 1},
}


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    found = importlib.import_module(f"operad.{module}")
    assert {name: getattr(found, name) for name in FIGURES[module]} == FIGURES[module]
