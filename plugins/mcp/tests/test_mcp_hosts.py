"""The files of MCP hosts, as the hosts write them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from operad import ConfigError, SourceError
from operad_mcp import load_mcp_servers
from plugins.mcp.tests.peers import HOSTILE, TABLES, Log, Patch, loaded, plain, table

VSCODE = Path(__file__).with_name("mcp_vscode.jsonc").read_text("utf-8")


GOOD = {"command": sys.executable, "args": [str(HOSTILE), "many"]}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(folder: Path, servers: Any, **options: Any) -> Any:
    """The servers of a file."""
    return load_mcp_servers(write(folder / "mcp.json", {"mcpServers": servers}), **options)


def test_a_file_of_vs_code_is_read_with_comments_inputs_and_variables(tmp_path: Path) -> None:
    path = write(tmp_path / ".vscode" / "mcp.json", VSCODE)
    write(tmp_path / ".env", "# secrets\nexport A=1\nB='two # 2'\nC=\"three\\n\"\nKEY=overridden\nD=4 # four\n")
    config = load_mcp_servers(path, inputs={"api-key": "hush"})["a"]
    assert config.args == ["-y", "a//b", "/* no comment */"]
    assert config.env == {
        "A": "1", "B": "two # 2", "C": "three\n", "D": "4", "KEY": "hush",
        "HOME_IS": str(Path.home()), "IN": f"{tmp_path}/src",
    }  # fmt: skip
    assert config.cwd == str(tmp_path)
    settings = write(tmp_path / "settings.json", {"mcp": {"servers": {"b": {"url": "http://h/mcp"}}}})
    assert load_mcp_servers(settings)["b"].url == "http://h/mcp"


@table("files")
def test_a_file_of_servers_is_read_as_hosts_read_it(
    servers: Any, expected: Any, ignored: str, tmp_path: Path, monkeypatch: Patch, caplog: Log
) -> None:
    monkeypatch.setenv("OPERAD_TEST_TOKEN", "t")
    configs = read(tmp_path, servers)
    found = {name: {field: getattr(configs[name], field) for field in fields} for name, fields in expected.items()}
    assert (list(configs), found) == (list(expected), expected)
    assert [record.getMessage().partition("ignored: ")[2] for record in caplog.records] == (
        [ignored] if ignored else []
    )


def test_an_input_without_a_terminal_is_refused_with_its_name_and_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "mcp.json", VSCODE)
    with pytest.raises(ConfigError, match=r"input 'api-key' \(The key of the service\).*inputs = "):
        load_mcp_servers(path)


def test_an_input_is_asked_for_once_where_there_is_a_terminal(tmp_path: Path, monkeypatch: Patch) -> None:
    entry = {"command": "x", "env": {"A": "${input:k}", "B": "${input:k}"}}
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        return "typed"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", ask)
    assert read(tmp_path, {"a": entry})["a"].env == {"A": "typed", "B": "typed"}
    assert len(asked) == 1


def test_a_folder_of_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "cwd": "sub"}, "b": {"command": "x", "cwd": "/abs"}, "c": {"command": "x"}}
    found = read(tmp_path, servers)
    assert [found[name].cwd for name in "abc"] == [str(tmp_path / "sub"), "/abs", str(tmp_path)]


@pytest.mark.parametrize(("content", "message"), TABLES["refused_files"])
def test_what_cannot_be_used_is_named(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_mcp_servers(write(tmp_path / "mcp.json", content))


def test_a_file_that_is_missing_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as caught:
        load_mcp_servers(tmp_path / "none.json")
    assert str(caught.value).count("none.json") == 1


def test_what_other_servers_of_a_file_need_is_not_asked_for(tmp_path: Path) -> None:
    servers = {"a": {"command": "x"}, "b": {"command": "${OPERAD_TEST_NONE}"}}
    assert list(read(tmp_path, servers, name="a")) == ["a"]
    with pytest.raises(ConfigError, match="it has a, b"):
        read(tmp_path, servers, name="c")


async def test_the_inputs_of_a_source_answer_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "/no/such/${input:k}"}}})
    async with plain() as registry:
        with pytest.raises(SourceError, match="/no/such/program"):
            await registry.load("mcp", config=str(path), inputs={"k": "program"}, name="a")


@pytest.mark.parametrize(("options", "message"), TABLES["servers_that_cannot_be_had"])
async def test_a_server_that_cannot_be_had_says_what_to_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises((SourceError, ConfigError), match=message):
        async with loaded("x", **options):
            pass


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_of_windows_is_read_in_whatever_encoding_and_keeps_its_paths(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mcp.json"
    server = r'{"command": "C:\\Program Files\\x\\s.exe", "args": ["C:\\a\\\\", "\\\\h\\d"], }'
    path.write_bytes(f'// Dateien\r\n{{"mcpServers": {{"ä": {server},}},}}\r\n'.encode(encoding))
    config = load_mcp_servers(path)["ä"]
    assert config.command == r"C:\Program Files\x\s.exe"
    assert config.args == ["C:\\a\\\\", "\\\\h\\d"]


@table("places_of_servers")
def test_servers_are_found_where_hosts_keep_them(content: Any, tmp_path: Path) -> None:
    assert load_mcp_servers(write(tmp_path / "mcp.json", content))["x"].command == "c"


def test_a_transport_of_an_unknown_type_fails_its_server_alone(tmp_path: Path) -> None:
    failures: dict[str, ConfigError] = {}
    found = read(tmp_path, {"c": {"url": "http://h", "transport": {"type": ["http"]}}}, failures=failures)
    assert found == {}
    assert "c.type: expected one of" in str(failures["c"])


async def test_a_file_of_which_no_server_can_be_loaded_is_reported_once(tmp_path: Path, caplog: Log) -> None:
    servers = {name: {"command": sys.executable, "args": ["-c", f"exit('no {name}')"]} for name in ("a", "b")}
    path = write(tmp_path / "mcp.json", {"mcpServers": servers})
    async with plain() as registry:
        with pytest.raises(SourceError, match=r"no server could be loaded: .*no a.*no b"):
            await registry.load("mcp", config=str(path))
    assert "is not loaded" not in caplog.text


async def test_the_servers_of_a_file_load_together_below_the_namespace_and_a_failing_one_stops_none(
    tmp_path: Path,
) -> None:
    servers = {"one": GOOD, "two": GOOD, "broken": {"command": "no-such-program"}}
    path = write(tmp_path / "mcp.json", {"mcpServers": servers})
    options: dict[str, Any] = {"config": str(path), "mode": "legacy"}
    both = ["one.tool1", "two.tool1"]
    async with plain() as registry:
        for namespace, ids in ((None, both), ("hosts", [f"hosts.{each}" for each in both])):
            specs = await registry.load("mcp", namespace=namespace, include=["tool1"], **options)
            assert [spec.id for spec in specs] == ids
        await registry.load("mcp", namespace="m", name="two", include=["tool1"], **options)
        assert (await registry.execute("m.tool1", {"a": 1})).data == {"a": 1}
        for wrong, error, message in (
            ({"name": "three"}, ConfigError, "broken, one, two"),
            ({"command": "x"}, ConfigError, "command or config"),
            ({"name": "broken"}, SourceError, "no-such-program"),
        ):
            with pytest.raises(error, match=message):
                await registry.load("mcp", **options, **wrong)
    async with plain() as registry:
        specs = await registry.load("mcp", namespace="", include=["tool1"], **options)
        assert [spec.id for spec in specs] == both


async def test_an_entry_that_cannot_be_used_is_told_and_the_others_load(tmp_path: Path, caplog: Log) -> None:
    keyless = {"command": "c", "env": {"K": "${input:key}"}}
    bad = {"keyless": keyless, "rootless": {"command": "${OPERAD_NO_ROOT}/c"}}
    path = write(tmp_path / "mcp.json", {"servers": {**bad, "good": GOOD}})
    async with plain() as registry:
        specs = await registry.load("mcp", config=str(path), mode="legacy", include=["tool1"])
        assert [spec.id for spec in specs] == ["good.tool1"]
    assert "keyless is not loaded" in caplog.text
    assert "OPERAD_NO_ROOT is required but not set" in caplog.text
    with pytest.raises((ConfigError, SourceError), match="input 'key'"):
        async with plain() as registry:
            await registry.load("mcp", config=str(write(tmp_path / "only.json", {"servers": bad})))


@table("logins")
def test_the_login_of_a_server_is_read_from_its_file(tmp_path: Path, given: Any, expected: Any) -> None:
    servers = {"a": {"url": "http://h/mcp", "oauth": given}, "b": {"url": "http://h/mcp", "oauth": False}}
    found = read(tmp_path, servers)
    assert {name: getattr(found["a"].auth, name) for name in expected} == expected
    assert found["b"].auth is None


def test_a_line_of_variables_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / ".env", "A=1\n\n# none\nno variable\n")
    with pytest.raises(ConfigError, match="line 4: expected NAME=value"):
        read(tmp_path, {"a": {"command": "x", "envFile": ".env"}})


async def test_one_server_of_a_file_is_loaded_by_its_name_with_what_both_include(tmp_path: Path) -> None:
    servers = {"a": {**GOOD, "includeTools": ["tool1", "tool2"]}, "off": {**GOOD, "disabled": True}}
    path = str(write(tmp_path / "mcp.json", {"mcpServers": servers}))
    async with loaded("n", config=path, name="a", include=["tool2*", "tool3"]) as registry:
        assert [spec.id for spec in registry.specs()] == ["n.tool2"]
    for options, words in (
        ({"config": path, "name": "off"}, 'the server "off" is disabled in this file'),
        ({"command": "true", "name": "a"}, "name needs config"),
    ):
        with pytest.raises((ConfigError, SourceError), match=words):
            async with loaded("n", **options):
                pass
