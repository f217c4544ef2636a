"""The documented defaults of options, and which of them are hidden. Change them in tables.json, too."""

import importlib

import attrs
import pytest

from operad_openapi import HTTPRequest, config
from plugins.openapi.tests.data import TABLES

OPTIONS = {
    name: made for name, made in vars(config).items() if attrs.has(made) and made.__module__ == config.__name__
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_have_the_documented_defaults_and_are_given_by_name(name):
    options, documented = attrs.fields_dict(OPTIONS[name]), TABLES["defaults"].get(name, {})
    assert {option: options[option].default for option in documented} == documented
    assert all(option.kw_only for option in options.values())
    assert TABLES["defaults"].keys() <= OPTIONS.keys()


@pytest.mark.parametrize(("name", "hidden"), TABLES["hidden options"].items())
def test_no_secret_is_in_the_repr_of_its_options(name, hidden):
    assert [option.name for option in attrs.fields(OPTIONS[name]) if option.repr is False] == hidden


@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "idle_timeout"])
def test_a_timeout_is_not_negative(name):
    for value in (0, None):
        assert getattr(config.HTTPOptions(**{name: value}), name) == value
    with pytest.raises(ValueError, match="must be >= 0"):
        config.HTTPOptions(**{name: -0.5})


@pytest.mark.parametrize("module", TABLES["records inside a source"])
def test_no_equality_or_text_is_compiled_for_records_that_are_never_compared_or_shown(module):
    for name, made in vars(importlib.import_module(f"operad_openapi.{module}")).items():
        if attrs.has(made) and made.__module__.endswith(module) and name not in ("Diagnostic", "Credentials"):
            assert "__eq__" not in vars(made)
            assert "__repr__" not in vars(made) or name == "HTTPRequest"


def test_the_text_of_a_request_that_a_hook_sees_has_no_secret():
    assert repr(HTTPRequest("GET", "http://h/?key=hush", {"key": "hush"}, b"hush")) == "HTTPRequest(method='GET')"
