"""What `operad mcp-config` prints, and how sources of the command line are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from operad_cli.adhoc import _namespace
from operad_cli.app import application


def mcp_config(*arguments: str) -> Result:
    """The result of the command; what it raises is its output too."""
    return CliRunner().invoke(application(), ["mcp-config", *arguments])


TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


@pytest.mark.parametrize(("where", "namespace"), TABLES["namespaces"])
def test_a_source_without_a_name_is_called_after_what_it_is(where: str, namespace: str) -> None:
    taken: set[str] = set()
    assert _namespace(where, taken) == namespace
    assert _namespace(where, taken) == f"{namespace}2"


def test_the_entry_of_a_host_starts_this_environments_operad(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    entry = json.loads(mcp_config().output)["mcpServers"]["operad"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-5:] == ["serve", "--mcp", "stdio", "--config", str(home / "operad.toml")]
    (home / "x.json").write_text("{}")
    spec = f"../{home.name}/x.json"
    entry = json.loads(mcp_config("--host", "vscode", "--openapi", spec).output)["servers"]["operad"]
    assert (entry["type"], entry["args"][-1]) == ("stdio", str(home / "x.json"))


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("cursor", {"mcpServers": {"desk": {"url": "http://h/mcp"}}}),
        ("vscode", {"servers": {"desk": {"type": "http", "url": "http://h/mcp"}}}),
        ("claude", {"mcpServers": {"desk": {"command": "npx", "args": ["-y", "mcp-remote", "http://h/mcp"]}}}),
    ],
)
def test_the_entry_of_a_server_that_runs_is_its_url_in_the_hosts_words(home: Path, host: str, entry: Any) -> None:
    printed = mcp_config("--host", host, "--name", "desk", "--url", "http://h/mcp")
    assert json.loads(printed.output) == entry


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the paths are those of Linux")
TOKEN = ("--url", "http://h/mcp", "--header", "Authorization=Bearer ${GH_TOKEN}")


@linux
@pytest.mark.parametrize(("host", "file", "entry"), TABLES["entries with a token"])
def test_the_entry_of_a_server_that_runs_has_the_header_with_its_token(
    home: Path, host: str, file: str, entry: Any
) -> None:
    printed = mcp_config("--host", host, *TOKEN)
    assert "<value of Authorization>" in printed.output
    assert "s3cret" not in printed.output
    mcp_config("--install", host, *TOKEN)
    key = "servers" if host == "vscode" else "mcpServers"
    assert json.loads((home / file).read_text())[key]["operad"] == entry


CONFIGURATION = """
[sources.github]
type = "openapi"
spec = "x.json"
auth = { type = "bearer", token = "${GH_TOKEN}" }
headers = { note = "$${NO_VARIABLE}" }
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, and a configuration that needs a variable."""
    (tmp_path / "work").mkdir()
    (tmp_path / "operad.toml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GH_TOKEN", "s3cret")
    return tmp_path


def test_the_entry_names_the_variables_of_the_configuration_and_prints_no_secret(home: Path) -> None:
    result = mcp_config("--config", "../operad.toml", "--print")
    entry = json.loads(result.output)["mcpServers"]["operad"]
    assert entry["env"] == {"GH_TOKEN": "<value of GH_TOKEN>"}
    assert entry["args"][-1] == str(home / "operad.toml")
    assert "s3cret" not in result.output


@linux
@pytest.mark.parametrize(
    ("host", "file", "key"),
    [
        ("claude", ".config/Claude/claude_desktop_config.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".config/Code/User/mcp.json", "servers"),
    ],
)
def test_install_adds_the_entry_to_the_hosts_file_and_keeps_the_old_one(
    home: Path, host: str, file: str, key: str
) -> None:
    path = home / file
    arguments = ["--install", host, "--config", "../operad.toml"]
    result = mcp_config(*arguments)
    assert str(path) in result.output
    assert "s3cret" not in result.output
    assert json.loads(path.read_text())[key]["operad"]["env"] == {"GH_TOKEN": "s3cret"}
    assert path.stat().st_mode & 0o777 == 0o600

    old = json.dumps({"theme": "dark", key: {"other": {"command": "x"}, "operad": {"command": "old"}}})
    path.write_text(old)
    for backup in (".bak", ".bak1"):
        result = mcp_config(*arguments)
        assert f"{path}{backup}" in result.output
    whole = json.loads(path.read_text())
    assert whole["theme"] == "dark"
    assert whole[key]["other"] == {"command": "x"}
    assert whole[key]["operad"]["args"][-1] == str(home / "operad.toml")
    assert path.with_name(f"{path.name}.bak").read_text() == old


def test_install_leaves_a_file_alone_that_it_cannot_extend(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    arguments = ["--install", "cursor", "--config", "../operad.toml"]
    wrong = '{"mcpServers": []}', "mcpServers: expected a JSON object, got list"
    for content, complaint in (
        ("{} // mine", "without comments"),
        ("[]", "expected a JSON object, got list"),
        wrong,
    ):
        path.write_text(content)
        result = mcp_config(*arguments)
        assert complaint in str(result.exception)
        assert path.read_text() == content
    monkeypatch.delenv("GH_TOKEN")
    result = mcp_config(*arguments)
    assert "required but not set: GH_TOKEN; set them" in str(result.exception)
