"""What `operad mcp-config` prints, and how sources of the command line are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from operad_cli.adhoc import _namespace
from operad_cli.app import application


def operad(folder: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    (folder / "operad.toml").write_text('[sources.x]\ntype = "scanner"\npath = "ops.py"\n')
    monkeypatch.chdir(folder)
    return CliRunner().invoke(application(), [*arguments], catch_exceptions=True)


@pytest.mark.parametrize(
    ("where", "namespace"),
    [
        ("https://api.github.com/openapi.json", "github"),
        ("./petstore3.json", "petstore3"),
        ("http://127.0.0.1:80/openapi.json", "api"),
        ("npx -y @modelcontextprotocol/server-filesystem .", "filesystem"),
        ("python -m mcp_server_time --local-timezone UTC", "time"),
        ("uvx mcp-server-git", "git"),
        ("https://mcp.linear.app/mcp", "linear"),
    ],
)
def test_a_source_without_a_name_is_called_after_what_it_is(where: str, namespace: str) -> None:
    taken: set[str] = set()
    assert _namespace(where, taken) == namespace
    assert _namespace(where, taken) == f"{namespace}2"


def test_the_entry_of_a_host_starts_this_environments_operad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = operad(tmp_path, "mcp-config", monkeypatch=monkeypatch)
    entry = json.loads(result.output)["mcpServers"]["operad"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-5:] == ["serve", "--mcp", "stdio", "--config", str(tmp_path / "operad.toml")]
    (tmp_path / "x.json").write_text("{}")
    result = operad(tmp_path, "mcp-config", "--host", "vscode", "--openapi", "x.json", monkeypatch=monkeypatch)
    entry = json.loads(result.output)["servers"]["operad"]
    assert (entry["type"], entry["args"][-1]) == ("stdio", str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("cursor", {"mcpServers": {"desk": {"url": "http://h/mcp"}}}),
        ("vscode", {"servers": {"desk": {"type": "http", "url": "http://h/mcp"}}}),
        ("claude", {"mcpServers": {"desk": {"command": "npx", "args": ["-y", "mcp-remote", "http://h/mcp"]}}}),
    ],
)
def test_the_entry_of_a_server_that_runs_is_its_url_in_the_hosts_words(
    host: str, entry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("mcp-config", "--host", host, "--name", "desk", "--url", "http://h/mcp")
    assert json.loads(operad(tmp_path, *arguments, monkeypatch=monkeypatch).output) == entry
