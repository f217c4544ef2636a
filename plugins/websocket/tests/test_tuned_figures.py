"""Bounds and tuned figures without a setting, and the documented defaults of options. Change them here, too."""

import importlib

import attrs
import pytest

FIGURES: dict[str, dict[str, float]] = {
    "_addresses": {"_MAX_TOPIC": 1_024}, "_authenticating": {"_LONGEST_TOKEN": 16 * 2**10},
    "_connecting": {"_DIGITS": 15}, "_connection": {"_SLOW": 2**20, "_UNCOUNTED": 64 * 2**10},
    "_desk": {"_REASONS": 1_000}, "_door": {"_BACKLOG": 512}, "_local": {"_LONGEST": 64},
    "_peers": {"_REMEMBERED": 1_024}, "_registering": {"_AT_ONCE": 5_000, "_NAMED": 5},
    "_switch": {"_LATE": 2_000, "_DEFAULT": 30_000},
    "_wire": {"_AT_ONCE": 32 * 2**10, "_WITHIN_LARGE": 256 * 2**10, "_TOGETHER": 64 * 2**10},
    "config": {"MAX_PAYLOAD": 4 * 2**20, "HEADROOM": 64 * 2**10},
    "spoke": {"_SILENT": 3, "_MAX_ANSWERING": 100, "_AT_ONCE": 5_000},
}  # fmt: skip
DEFAULTS: dict[str, dict[str, dict[str, float]]] = {
    "config": {
        "Limits": {
            "calls": 20_000, "calls_per_handler": 5_000, "links": 1_000, "topics": 100_000,
            "unfinished": 256 * 2**20, "handshake": 5.0, "handshakes": 256, "handshakes_per_address": 64,
            "grace": 30.0,
        },
        "HubConfig": {
            "anonymous": False, "max_payload": 4 * 2**20, "max_buffer": 16 * 2**20, "ping": 20.0,
            "drain": 10.0, "check_frames": False,
        },
        "WebSocketConfig": {"max_payload": 4 * 2**20, "ping": 20.0, "connect_timeout": 10.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    found = importlib.import_module(f"operad_websocket.{module}")
    assert {name: getattr(found, name) for name in FIGURES[module]} == FIGURES[module]


@pytest.mark.parametrize("module", DEFAULTS)
def test_options_have_the_documented_defaults_and_show_no_secret(module: str) -> None:
    found = importlib.import_module(f"operad_websocket.{module}")
    for name, defaults in DEFAULTS[module].items():
        fields = attrs.fields(getattr(found, name))
        assert {each.name: each.default for each in fields if each.name in defaults} == defaults
        assert [each.name for each in fields if each.name != "url" and not each.kw_only] == []
    hidden = [
        [each.name for each in attrs.fields(made) if not each.repr]
        for made in (found.HubConfig, found.WebSocketConfig)
    ]
    assert hidden == [["tokens"], ["token", "headers"]]
