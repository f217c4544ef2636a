"""Bounds and tuned figures without a setting: they were measured, or a page names them. Change them here, too."""

import importlib

import pytest

FIGURES = {
    "serving.answers": {"_AGAIN": 1.0, "_MAX_PEERS": 10_000, "_PATIENCE": 2.0},
    "calling.flow": {"LEAST": 1_024, "MOST": 65_536, "FEW": 4, "_PATIENCE": 2.0},
    "serving.following": {"RETRY": 5.0, "_AT_ONCE": 500},
    "inprocess": {"_MAX_DELIVERIES": 4_096},
    "serving.listing": {"MAX_VIA": 8, "_PAGE": 200, "_LARGEST_PAGE": 1_000},
    "calling.pending": {"MAX_ORPHANS": 10_000, "MAX_ANSWERED": 10_000, "_CLOSING": 5.0},
    "federation.remote": {
        "_SETTLE": 0.2,
        "_DESCRIBING": 1.0,
        "_DESCRIBE_AGAIN": 30.0,
        "_MAX_PAGES": 1_000,
    },
    "reports": {
        "_LONGEST": 200,
        "_BURST": 20,
        "_A_SECOND": 1.0,
        "_ALL_BURST": 200,
        "_ALL_A_SECOND": 10.0,
        "_REMEMBERED": 1_000,
    },
    "requests": {"LARGE": 65_536},
    "calling.retries": {"_FIRST_PAUSE": 0.05, "_LONGEST_PAUSE": 2.0, "_ABSENT": 5.0, "_YOUNG": 10.0},
    "serving.served": {
        "MAX_RECENT": 10_000,
        "_REMEMBERED": 60_000,
        "_NOTICE_AFTER": 0.05,
        "_TICK": 0.25,
        "_SLACK": 0.25,
        "_SETTLING": 1.0,
        "LONGEST": 1e10,
    },
    "serving.serving": {"_BREATH": 8, "_CREDIT_BREATH": 256},
    "calling.stream": {"_MIN_BUFFER": 1_024},
    "unusable": {"_LARGEST": 65_536},
}


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    found = importlib.import_module(f"operad_calls.{module}")
    assert {name: getattr(found, name) for name in FIGURES[module]} == FIGURES[module]
