"""Bounds and tuned figures without a setting, and the documented defaults of options. Change them here, too."""

import importlib
from typing import Any

import attrs
import pytest

from operad_openapi import HTTPRequest, config

FIGURES: dict[str, dict[str, float]] = {
    "_document.document": {"_MAX_HOPS": 64}, "_document.parsing": {"ASIDE_BYTES": 256 * 2**10, "_EXCERPT": 60},
    "_document.schemas": {"_MAX_DEPTH": 200, "_MAX_COMPOSED": 100},
    "_document.yamltext": {"MAX_DEPTH": 500, "MAX_NODES": 5_000_000, "MAX_REPEATED": 100},
    "_http.decoding": {"PIECE": 256 * 2**10, "_MAX_CODINGS": 3, "_GZIP": 31},
    "_http.progress": {"LARGE": 2**20, "_CHUNK": 256 * 2**10, "_TIMES": 100},
    "_http.responses": {"_EXCERPT": 500, "_MAX_SAID": 300},
    "_http.tokens": {"_MAX_BODY": 2**20, "_MAX_CLIENTS": 1_000}, "_loading": {"_AT_ONCE": 16, "_BATCH": 64},
    "_operation": {"_DEFAULT_RECONNECT_MS": 3_000}, "_planned": {"_MANY": 1_000},
    "_remembered": {"_SMALLEST": 256 * 2**10, "_LARGEST": 2**20},
    "_request.adapting": {"_MAX_DEPTH": 64, "_MAX_PARTS": 4}, "_request.files": {"_CHUNK": 256 * 2**10},
    "_request.inputs": {"_MAX_COMPOSED": 100}, "_request.multipart": {"_MAX_DEPTH": 4},
}  # fmt: skip
DEFAULTS: dict[str, dict[str, dict[str, float]]] = {
    "config": {
        "Pagination": {"first_page": 1},
        "HTTPLimits": {
            "response_bytes": 64 * 2**20, "error_bytes": 64 * 2**10, "event_bytes": 4 * 2**20,
            "document_bytes": 64 * 2**20, "documents": 10_000, "connections": 100, "redirects": 5,
            "header_bytes": 64 * 2**10,
        },
        "HTTPOptions": {
            "timeout": 30.0, "connect_timeout": 10.0, "reconnect": False, "keep_cookies": False,
            "tls_verify": True,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("module", FIGURES)
def test_the_figures_of_a_module_are_those_that_were_measured(module: str) -> None:
    found = importlib.import_module(f"operad_openapi.{module}")
    assert {name: getattr(found, name) for name in FIGURES[module]} == FIGURES[module]


@pytest.mark.parametrize("module", DEFAULTS)
def test_options_have_the_documented_defaults_and_are_given_by_name(module: str) -> None:
    found = importlib.import_module(f"operad_openapi.{module}")
    records = {
        name: made for name, made in vars(found).items() if getattr(made, "__module__", "") == found.__name__
    }
    for name, made in records.items():
        if attrs.has(made):
            defaults = DEFAULTS[module].get(name, {})
            assert {each.name: each.default for each in attrs.fields(made) if each.name in defaults} == defaults
            assert all(each.kw_only for each in attrs.fields(made))
    assert DEFAULTS[module].keys() <= records.keys()


@pytest.mark.parametrize("module", [config], ids=["config"])
def test_no_secret_is_in_the_repr_of_its_options(module: Any) -> None:
    hidden = {
        made.__name__: [each.name for each in attrs.fields(made) if each.repr is False]
        for made in (module.HTTPAuth, module.HTTPOptions)
    }
    assert hidden == {
        "HTTPAuth": ["token", "password", "client_secret", "private_key", "refresh_token", "extra"],
        "HTTPOptions": ["headers", "query", "cookies", "patch", "proxy", "request_headers", "credentials_for", "on_request", "on_response"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "idle_timeout"])
def test_a_timeout_is_not_negative(name: str) -> None:
    for value in (0, None):
        options: dict[str, float | None] = {name: value}
        assert getattr(config.HTTPOptions(**options), name) == value  # type: ignore[arg-type]  # one of the three
    with pytest.raises(ValueError, match="must be >= 0"):
        config.HTTPOptions(**{name: -0.5})  # type: ignore[arg-type]  # one of the three


INNER = [
    "_document.contents", "_document.grafting", "_document.listing", "_http.redirects", "_request.bodies",
    "_request.files", "_request.inputs", "_request.multipart", "_request.plan", "_request.request",
]  # fmt: skip
"""Modules whose records are never compared or shown."""


@pytest.mark.parametrize("module", INNER)
def test_no_equality_or_text_is_compiled_for_records_inside_a_source(module: str) -> None:
    for name, made in vars(importlib.import_module(f"operad_openapi.{module}")).items():
        if attrs.has(made) and made.__module__.endswith(module) and name not in ("Diagnostic", "Credentials"):
            assert "__eq__" not in vars(made)
            assert "__repr__" not in vars(made) or name == "HTTPRequest"


def test_the_text_of_a_request_that_a_hook_sees_has_no_secret() -> None:
    assert repr(HTTPRequest("GET", "http://h/?key=hush", {"key": "hush"}, b"hush")) == "HTTPRequest(method='GET')"
