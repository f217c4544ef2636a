"""The command line: what each command shows, asks, refuses and answers with."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest

import operad
from operad_auth.http.urls import shown_url
from operad_cli.running.inputs import input_of
from plugins.cli.tests.conftest import Run, configure

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


def test_list_shows_all_operations(run: Run) -> None:
    code, out, _ = run("list")
    assert code == 0
    assert "math.add" in out
    assert "Add two integers." in out


def test_list_takes_a_pattern_and_prints_json(run: Run) -> None:
    code, out, _ = run("list", "math.a*", "--json")
    assert code == 0
    assert [spec["id"] for spec in json.loads(out)] == ["math.add"]


def test_search_finds_by_words(run: Run) -> None:
    code, out, _ = run("search", "integers", "--json")
    assert code == 0
    assert [spec["id"] for spec in json.loads(out)] == ["math.add"]


def test_describe_shows_schemas(run: Run) -> None:
    code, out, _ = run("describe", "math.add", "--json")
    assert code == 0
    assert json.loads(out)["inputSchema"]["properties"]["a"] == {"type": "integer"}


def test_list_shows_the_description_if_the_title_only_repeats_the_name(run: Run) -> None:
    spec = (
        'spec = {{"name": "kg.add_books", "title": "{}", "description": "Put books on a shelf.\\nAll of them."}}'
    )
    for title, shown in (
        ("Add Books", "Put books on a shelf."),
        ("Fill a shelf", "Fill a shelf"),
        ("", "Put books"),
    ):
        Path("ops/kg.py").write_text(spec.format(title))
        _, out, _ = run("list", "local.kg.*")
        assert shown in out
        assert "All of them" not in out


def test_describe_shows_a_title_that_repeats_the_description_once(run: Run) -> None:
    Path("ops/twice.py").write_text('spec = {"name": "twice", "title": "Say it", "description": "Say it"}')
    _, out, _ = run("describe", "local.twice")
    assert out.count("Say it") == 1


def test_a_command_within_a_program_leaves_its_signals_as_they_were(run: Run) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    assert run("list")[0] == 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_call_converts_key_value_as_the_schema_says(run: Run) -> None:
    code, out, _ = run("call", "math.add", "a=1", "b=2", "--json")
    assert code == 0
    assert json.loads(out) == {"data": 3, "meta": json.loads(out)["meta"]}
    assert json.loads(out)["meta"]["source"] == "local"


def test_call_prints_source_meta_and_data_for_people(run: Run) -> None:
    code, out, _ = run("call", "math.add", "a=1")
    assert code == 0
    assert "local" in out
    assert "operationId: math.add" in out


def test_call_runs_as_the_owner_of_the_configuration(run: Run) -> None:
    assert run("call", "math.guarded")[0] == 0


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


def test_an_error_with_json_is_an_object_on_standard_output(run: Run) -> None:
    code, out, _ = run("call", "math.add", "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "arguments",
    ["nope", "call", "call math.add noequals", "call math.add --json {broken", "list --nope"],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: str) -> None:
    code, _, err = run(*arguments.split())
    assert code == 2
    assert "error: " in err


def test_the_traceback_is_there_with_debug(run: Run) -> None:
    code, _, err = run("call", "math.broken", "--debug")
    assert code == 1
    assert "Traceback" in err


FAILING = '[sources.x]\ntype = "nothing"\n[sources.y]\ntype = "scanner"\npath = "nowhere"\n'


def test_a_source_that_fails_is_named_and_the_others_are_listed(run: Run) -> None:
    configure(FAILING)
    code, out, err = run("list")
    assert code == 1
    assert "math.add" in out
    assert err.startswith('error: source [sources.x] is not loaded: unknown source "nothing"')
    assert "source [sources.y] is not loaded: " in err
    assert "no such file or folder" in err


def test_an_id_of_a_source_that_failed_is_answered_with_why(run: Run) -> None:
    configure(FAILING)
    _, _, err = run("call", "x.anything")
    assert 'source [sources.x] is not loaded: unknown source "nothing"' in err
    assert "sources.y" not in err


def test_an_unknown_id_names_the_sources_that_failed(run: Run) -> None:
    configure(FAILING)
    assert "these sources are not loaded: x, y" in run("call", "z.anything")[2]


def test_the_plugins_that_the_configuration_disables_are_not_used(run: Run) -> None:
    configure('[plugins]\ndisable = ["scanner"]\n')
    code, _, err = run("call", "math.add", "a=1")
    assert code == 1
    assert "is disabled" in err


def test_no_configuration_is_an_error_that_says_what_to_do(run: Run) -> None:
    Path("operad.toml").unlink()
    code, _, err = run("list")
    assert code == 1
    assert "no operad.toml in this folder" in err


def test_plugins_are_listed_with_what_they_contribute(run: Run) -> None:
    _, out, _ = run("plugins", "--json")
    scanner = next(record for record in json.loads(out) if record["name"] == "scanner")
    assert scanner["status"] == "loaded"
    assert scanner["contributes"] == {"sources": ["scanner"]}


def test_the_configuration_of_a_folder_above_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("deeper").mkdir()
    monkeypatch.chdir("deeper")
    assert run("call", "math.add", "a=1")[0] == 0


def test_tool_operad_of_a_pyproject_is_a_configuration(run: Run) -> None:
    Path("operad.toml").unlink()
    Path("pyproject.toml").write_text('[tool.operad.sources.local]\ntype = "scanner"\npath = "ops"\n')
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


def test_an_unknown_id_names_the_source_that_is_empty(run: Run) -> None:
    Path("none").mkdir()
    configure('[sources.empty]\ntype = "scanner"\npath = "none"\n')
    code, _, err = run("call", "empty.add")
    assert code == 1
    assert "source [sources.empty] has no operations at present" in err
