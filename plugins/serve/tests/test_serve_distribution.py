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


LOGIN = {
    "url": "https://gw.example.com",
    "issuer": "https://id.example.com",
    "users": {"a": []},
    "client_id": "me",
}
OPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "api.options": (operad_serve.OpenAPIServerConfig, {}),
    "door.options": (operad_serve.ServeOptions, {}),
    "door.plan": (operad_serve.Plan, {"options": None, "calls": None}),
    "oauth.options": (OAuthServerOptions, LOGIN),
}
"""The options of each module, and those that have to be given."""


@pytest.fixture(params=OPTIONS)
def module(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_option_is_given_by_its_name_and_has_its_documented_default(module: str) -> None:
    kind, given = OPTIONS[module]
    found = {name: value for name, value in attrs.asdict(kind(**given)).items() if name not in given}
    assert json.loads(json.dumps(found, default=str)) == TABLES["defaults"][module]
    with pytest.raises(TypeError, match="positional"):
        kind(*given.values(), 1)


def test_a_limit_is_positive(module: str) -> None:
    kind, given = OPTIONS[module]
    for name in TABLES["positive numbers"][module]:
        assert getattr(kind(**given, **{name: 0.5}), name) == 0.5
        with pytest.raises(ValueError, match=name):
            kind(**given, **{name: 0})
    if module == "door.options":
        assert kind(drain_timeout=0).drain_timeout == 0


def test_secrets_of_options_are_not_shown(module: str) -> None:
    kind, given = OPTIONS[module]
    secrets = dict.fromkeys(TABLES["secret options"][module], "s3cret")
    assert "s3cret" not in repr(kind(**given, **secrets))
