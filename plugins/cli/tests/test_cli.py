"""The command line: what each command shows, asks, refuses and answers with."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

import operad
from operad_auth.http.urls import shown_url
from operad_cli.running.inputs import input_of
from plugins.cli.tests.conftest import Run, check, rows_of

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

OPERATIONS = '''
from operad import CallError, operation

@operation(namespace="math", type="query")
async def add(a: int, b: int = 10) -> int:
    """Add two integers."""
    return a + b

@operation(namespace="math")
async def count(n: int):
    for i in range(n):
        yield i

@operation(namespace="math")
async def broken() -> None:
    raise RuntimeError("boom")

@operation(namespace="math", access_control={"required_scopes": ["admin"]})
async def guarded() -> str:
    return "in"
'''


@pytest.mark.parametrize("row", rows_of("math"))
def test_a_command(run: Run, row: dict[str, Any]) -> None:
    check(run, row)


def test_describe_shows_a_title_that_repeats_the_description_once(run: Run) -> None:
    Path("ops/twice.py").write_text('spec = {"name": "twice", "title": "Say it", "description": "Say it"}')
    _, out, _ = run("describe", "local.twice")
    assert out.count("Say it") == 1


def test_a_command_within_a_program_leaves_its_signals_as_they_were(run: Run) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    assert run("list")[0] == 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_subscribe_prints_one_json_line_an_envelope_and_stops_at_the_limit(run: Run) -> None:
    code, out, _ = run("subscribe", "math.count", "n=1000", "--json", "-n", "3")
    assert code == 0
    assert [json.loads(line)["data"] for line in out.splitlines()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["call", "math.ad", "a=1"], 'operation "math.ad" not found; did you mean "math.add"'),
        (["describe", "nothing.here"], 'operation "nothing.here" not found'),
        (["call", "math.add", "a=x"], 'invalid input for "math.add"'),
        (["call", "math.broken"], "boom"),
        (["list", "-c", "nowhere.toml"], "no configuration at nowhere.toml"),
    ],
)
def test_an_error_is_one_paragraph_and_exit_code_1(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert code == 1
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
    assert message in err
    assert "Traceback" not in out + err


def test_plugins_are_listed_with_what_they_contribute(run: Run) -> None:
    _, out, _ = run("plugins", "--json")
    scanner = next(record for record in json.loads(out) if record["name"] == "scanner")
    assert scanner["status"] == "loaded"
    assert scanner["contributes"] == {"sources": ["scanner"]}


def test_the_configuration_of_a_folder_above_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("deeper").mkdir()
    monkeypatch.chdir("deeper")
    assert run("call", "math.add", "a=1")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        'math.add --json {"a":1}', 'math.add --json={"a":1}', "--json math.add a=1", "math.add a=1 --json",
        "math.add --json -",
    ],
)  # fmt: skip
def test_json_with_a_value_is_the_input_too(run: Run, arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))
    code, out, _ = run("call", *arguments.split())
    assert (code, json.loads(out)["data"]) == (0, 11)


@pytest.mark.parametrize(("fields", "properties", "expected"), TABLES["values"])
def test_key_value_is_converted_without_guessing(
    fields: list[str], properties: dict[str, object], expected: dict[str, object]
) -> None:
    schema = operad.from_schema({"type": "object", "properties": properties})
    assert input_of(fields, schema) == expected


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("ws://127.0.0.1:8765/", "ws://127.0.0.1:8765/"),
        ("nats://user:secret@host:4222", "nats://host:4222"),
        ("redis://:secret@host/0?password=secret", "redis://host/0"),
        ("redis://me:secret/x@host/0", "redis://host/0"),
        ("ws://me:secret#x@host:1/0", "ws://host:1/0"),
        ("https://me:secret?x@host/0", "https://host/0"),
        ("https://host:1/@scope/x", "https://host:1/@scope/x"),
    ],
)
def test_a_transport_is_printed_without_its_secrets(url: str, printed: str) -> None:
    assert shown_url(url) == printed
