"""operad-serve as a distribution, against the conformance kit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import operad_serve
from operad_auth import TokenRecord
from operad_serve.oauth.clients import Client
from operad_serve.oauth.options import OAuthServerOptions
from operad_testing import PluginConformance
from plugins.serve.tests.front_door import TABLES


class TestPlugin(PluginConformance):
    distribution = "operad-serve"
    contributes = {"hooks": ["operad_commands"], "servers": ["openapi"]}


def test_the_command_line_names_the_distribution_where_it_is_not_loaded() -> None:
    pytest.importorskip("operad_cli")
    command = [sys.executable, "-m", "operad_cli.main", "serve", "--http", "127.0.0.1:0"]
    without = {**os.environ, "OPERAD_DISABLE_PLUGINS": "serve"}
    done = subprocess.run(command, env=without, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install operad-serve" in " ".join(done.stderr.split())


def test_importing_the_plugin_imports_no_server() -> None:
    program = "import sys, operad_serve.plugin; print(sorted({'uvicorn', 'click', 'rfc3986_validator'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_servers_are_found_by_hooks_and_never_imported() -> None:
    sources = Path(operad_serve.__file__).parent.rglob("*.py")
    imports = re.compile(r"^\s*(?:from|import) operad_(?:openapi|mcp)\b", re.MULTILINE)
    assert [path.name for path in sources if imports.search(path.read_text(encoding="utf-8"))] == []


def test_every_public_name_is_there_and_no_other() -> None:
    assert dir(operad_serve) == sorted(operad_serve.__all__)
    assert all(getattr(operad_serve, name).__name__ == name for name in operad_serve.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = operad_serve.other


def test_without_options_nothing_is_trusted_and_the_explorer_is_shown() -> None:
    options = operad_serve.ServeOptions()
    for made in (operad_serve.ServeOptions, operad_serve.Plan, operad_serve.OpenAPIServerConfig):
        with pytest.raises(TypeError, match="positional"):  # options are named
            made(options)
    for name in ("proxy_headers", "access_log", "strict", "anonymous"):
        assert getattr(options, name) is False
    assert options.explorer is True
    config = operad_serve.OpenAPIServerConfig()
    assert (config.anonymous, config.expose_upstream) == (False, False)
    assert (config.explorer, config.mask_errors, config.check_formats) == (True, True, True)
    plan = operad_serve.Plan(options=options)
    assert (plan.is_stdio, plan.has_transport, plan.is_quiet, plan.mask_errors) == (False, False, False, True)


OPTIONS = (operad_serve.OpenAPIServerConfig, operad_serve.ServeOptions, OAuthServerOptions)
LOGIN = {
    "url": "https://gw.example.com",
    "issuer": "https://id.example.com",
    "users": {"a": []},
    "client_id": "me",
}


def options(kind: Any, **given: Any) -> Any:
    """Options of a kind, with those that it requires."""
    return kind(**(LOGIN if kind is OAuthServerOptions else {}), **given)


@pytest.mark.parametrize("kind", OPTIONS)
def test_each_option_has_its_documented_default(kind: Any) -> None:
    found = {name: value for name, value in attrs.asdict(options(kind)).items() if name not in LOGIN}
    assert json.loads(json.dumps(found)) == TABLES["defaults"][kind.__name__]


@pytest.mark.parametrize(("kind", "names"), list(zip(OPTIONS, TABLES["positive numbers"], strict=True)))
def test_a_limit_is_positive(kind: Any, names: list[str]) -> None:
    for name in names:
        assert getattr(options(kind, **{name: 0.5}), name) == 0.5
        with pytest.raises(ValueError, match=name):
            options(kind, **{name: -1})
        if name == "drain_timeout":  # nothing is waited for
            assert options(kind, **{name: 0}).drain_timeout == 0
        else:
            with pytest.raises(ValueError, match=name):
                options(kind, **{name: 0})


def test_secrets_of_options_are_not_shown() -> None:
    login = options(OAuthServerOptions, client_secret="s3cret", private_key="s3cret")
    token = TokenRecord(token="s3cret-token-123456", id="s3cret-id")
    for shown in (
        login,
        operad_serve.ServeOptions(tokens=[token]),
        operad_serve.OpenAPIServerConfig(authenticate=token),
    ):
        assert "s3cret" not in repr(shown)
    client = Client(id="x", name="n", redirect_uris=[], secret="s3cret")
    assert (client.refreshes, "s3cret" in repr(client)) == (True, False)
