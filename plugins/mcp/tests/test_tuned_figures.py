"""Bounds and tuned figures without a setting, and the documented defaults of options. Change them here, too."""

import importlib

import attrs
import pytest

FIGURES: dict[str, dict[str, float]] = {
    "client.operations": {"_AT_ONCE": 100}, "client.tasks": {"_KEPT": 7 * 86_400.0, "_MOST_KEPT": 10_000},
    "content": {"_AT_ONCE": 2_000}, "foreign": {"MAX_TEXT": 64 * 2**10, "_MESSAGE": 2_000},
    "server.changes": {"MAX_WATCHED": 1_000}, "server.http": {"_RETRY_MS": 500},
    "server.prompts": {"_MAX_VALUES": 100}, "server.resources": {"_MAX_KNOWN": 10_000},
    "server.results": {"MAX_DEPTH": 100, "_ERROR_TEXT": 4_000},
    "server.sdk": {"_TITLE": 200, "_INSTRUCTIONS": 2_000}, "server.stdio": {"MAX_LINE": 64 * 2**20, "_AHEAD": 64},
    "server.tools": {"_PAGE_BYTES": 96 * 2**10, "_SHORT": 120, "_PREVIEW": 2_000},
    "wire.callbacks": {"_MOST_ASKED": 64}, "wire.dialing": {"_MAX_ROUNDS": 10},
    "wire.exchange": {"_BODY_KEPT": 2_000, "_READ_TIMEOUT": 86_400.0, "_REDIRECTS": 5},
    "wire.http": {"_RESUMED": 2}, "wire.link": {"KEPT": 256},
    "wire.messages": {"EDGE": 512, "_SHOWN": 200, "_MOST": 1_000}, "wire.session": {"_MOST_ASKED": 1_024},
    "wire.stdio": {"_STDERR_KEPT": 16 * 2**10, "_WORDS": 200, "_PRINTED_KEPT": 3},
    "wire.transport": {"_HEAD": 100 * 2**10, "_PIECE": 32 * 2**10}, "wire.watching": {"_EVENTS_KEPT": 1_024},
}  # fmt: skip
DEFAULTS: dict[str, dict[str, dict[str, float]]] = {
    "config": {
        "MCPArgument": {"hide": False},
        "MCPTool": {"hide": False},
        "MCPClientConfig": {
            "max_sessions": 1_000, "session_idle": 300.0, "connect_timeout": 30.0, "discover_timeout": 5.0,
            "timeout": 30.0, "renew_timeout": False, "shutdown_timeout": 2.0, "max_message_bytes": 64 * 2**20,
            "max_pages": 1_000, "max_listing_bytes": 256 * 2**20, "pin": False, "server_operations": False,
            "tools": True, "resources": True, "prompts": True, "trust_annotations": False,
            "parse_json_text": False, "keep_tasks": False,
        },
    },
    "envelopes": {"MCPResponseMeta": {"is_error": False}},
    "source": {},
    "server.options": {
        "MCPServeConfig": {
            "search_above": 100, "output_values": 500, "page_size": 100, "timeout": 300.0,
            "stream_timeout": 30.0, "stream_items": 1_000, "stream_bytes": 2**20,
            "result_bytes": 512 * 2**10, "mask_errors": True, "expose_upstream": False,
            "json_response": False, "resumable": False, "max_body": 4 * 2**20, "body_timeout": 30.0,
            "max_sessions": 10_000, "session_idle": 1800.0, "anonymous": False,
        },
    },
}  # fmt: skip


FOUND = {module: importlib.import_module(f"operad_mcp.{module}") for module in (*FIGURES, *DEFAULTS)}


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    assert {name: getattr(FOUND[module], name) for name in FIGURES[module]} == FIGURES[module]


@pytest.mark.parametrize("module", DEFAULTS)
def test_options_have_the_documented_defaults_and_are_given_by_name(module: str) -> None:
    found = FOUND[module]
    records = {
        name: made for name, made in vars(found).items() if getattr(made, "__module__", "") == found.__name__
    }
    for name, made in records.items():
        if attrs.has(made):
            defaults = DEFAULTS[module].get(name, {})
            assert {each.name: each.default for each in attrs.fields(made) if each.name in defaults} == defaults
            assert name == "MCPProgress" or all(each.kw_only for each in attrs.fields(made))
    assert DEFAULTS[module].keys() <= records.keys()
