"""The documented defaults of options, and which of them are hidden. Change them in tables.json, too."""

import importlib

import attrs
import pytest

from operad_openapi import HTTPRequest, HTTPServiceConfig
from plugins.openapi.tests.data import TABLES


def options(module):
    """The classes of options in a module, by name."""
    found = vars(importlib.import_module(f"operad_openapi.{module}"))
    return {
        name: made for name, made in found.items() if attrs.has(made) and made.__module__.endswith(f".{module}")
    }


@pytest.mark.parametrize("module", ["config", "source"])
def test_options_have_the_documented_defaults_and_are_given_by_name(module):
    for name, made in options(module).items():
        fields, documented = attrs.fields_dict(made), TABLES["defaults"][name]
        assert {field: fields[field].default for field in documented} == documented
        assert all(field.kw_only for field in fields.values())


@pytest.mark.parametrize("module", ["config", "source"])
def test_no_secret_is_in_the_repr_of_its_options(module):
    for name, made in options(module).items():
        hidden = [one.name for one in attrs.fields(made) if one.repr is False and not one.inherited]
        assert hidden == TABLES["hidden options"].get(name, [])


@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "idle_timeout"])
def test_a_timeout_is_not_negative(name):
    for value in (0, None):
        assert getattr(HTTPServiceConfig(namespace="a", **{name: value}), name) == value
    with pytest.raises(ValueError, match="must be >= 0"):
        HTTPServiceConfig(namespace="a", **{name: -0.5})


@pytest.mark.parametrize("module", TABLES["records inside a source"])
def test_no_equality_or_text_is_compiled_for_records_that_are_never_compared_or_shown(module):
    for name, made in vars(importlib.import_module(f"operad_openapi.{module}")).items():
        if attrs.has(made) and made.__module__.endswith(module) and name not in ("Diagnostic", "Credentials"):
            assert "__eq__" not in vars(made)
            assert "__repr__" not in vars(made) or name == "HTTPRequest"


def test_the_text_of_a_request_that_a_hook_sees_has_no_secret():
    assert repr(HTTPRequest("GET", "http://h/?key=hush", {"key": "hush"}, b"hush")) == "HTTPRequest(method='GET')"
