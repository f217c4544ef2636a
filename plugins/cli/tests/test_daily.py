"""What people do every day with the command: inputs, answers, completion, set-up, check-up."""

from __future__ import annotations

import io
import json
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

import click
import pytest

from operad import OperationSpec
from operad_cli.app import application
from operad_cli.main import main
from operad_cli.running import opening, schemas
from operad_schema import from_schema
from plugins.cli.tests.at_rest import wait_until_at_rest
from plugins.cli.tests.conftest import Run, check, configure, http_server, respond, rows_of

OPERATIONS = '''
from operad import operation

@operation(namespace="text", type="query")
async def head(text: str, lines: int = 1) -> list[str]:
    """The first lines."""
    return text.splitlines()[:lines]

@operation(namespace="text", type="query", input_schema={"type": "object"}, output_schema={
    "type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False})
async def echo(input):
    return input

@operation(namespace="text")
async def outer(context) -> int:
    await context.env.text.head({"text": "a"})
    await context.env.text.head({"text": "b"})
    return 1
'''

# --- inputs and answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of("text"))
def test_a_command(run: Run, row: dict[str, Any]) -> None:
    check(run, row)


def test_a_call_runs_the_lifespan_of_a_scanned_folder(run: Run) -> None:
    Path("ops", "shared.py").write_text(
        "from contextlib import asynccontextmanager\nfrom pathlib import Path\n"
        "from operad import OperationContext, operation\n"
        "@asynccontextmanager\nasync def lifespan(registry):\n    yield 'open'\n    Path('ended').touch()\n"
        "@operation(namespace='shared')\nasync def state(context: OperationContext) -> str:\n    return context.state\n"
    )
    code, out, _ = run("call", "shared.state", "--data")
    assert (code, out.strip()) == (0, "open")
    assert Path("ended").exists()


def test_what_is_written_is_told_as_json_too(run: Run) -> None:
    assert json.loads(run("init", "--force", "--json")[1]) == {
        "configuration": "operad.toml",
        "sources": [{"name": "ops", "type": "scanner", "what": "ops"}],
    }
    assert json.loads(run("stubs", "--json")[1]) == {"folder": "operad_types", "operations": 3, "namespaces": 1}
    pytest.importorskip("copier")
    assert json.loads(run("new-plugin", "pigeons", "--json")[1]) == {"folder": "operad-pigeons"}


def test_every_command_that_answers_anything_answers_json() -> None:
    group = application()
    context = click.Context(group)
    without = {"completion", "hub", "mcp-config", "serve"}  # a script, JSON anyway, and what runs until Ctrl-C
    for name in set(group.list_commands(context)) - without:
        command = group.get_command(context, name)
        assert command is not None
        assert any("--json" in parameter.opts for parameter in command.params), name


def test_standard_input_that_is_empty_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert "the input is not JSON: standard input is empty" in run("call", "text.head", "--input", "-")[2]


def test_a_variable_that_names_no_configuration_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERAD_CONFIG", "gone.toml")
    assert "OPERAD_CONFIG is gone.toml, but there is no such file" in run("list")[2]


def test_a_trace_draws_the_calls_that_a_call_made(run: Run) -> None:
    code, out, _ = run("trace", "text.outer")
    assert code == 0
    assert [line.split()[-3] for line in out.splitlines()] == ["text.outer", "text.head", "text.head"]
    (root,) = json.loads(run("trace", "text.outer", "--json")[1])
    assert [call["operationId"] for call in root["calls"]] == ["text.head", "text.head"]
    code, out, _ = run("trace", "text.head")
    assert code == 1
    assert "VALIDATION_ERROR" in out


def test_an_entry_of_a_client_names_the_profile(run: Run) -> None:
    Path("operad.toml").write_text('[profiles.local.sources.local]\ntype = "scanner"\npath = "ops"\n')
    entry = json.loads(run("mcp-config", "--profile", "local")[1])["mcpServers"]["operad"]
    assert entry["args"][-2:] == ["--profile", "local"]


ASKING = """
import enum
from operad import operation

class Color(enum.Enum):
    red = "red"
    blue = "blue"

@operation(namespace="ask", type="query")
async def paint(color: Color, times: int) -> str:
    return color.value * times
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_a_prompt_shows_the_choices_and_asks_again_and_ends_at_ctrl_c(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ops" / "ask.py").write_text(ASKING)
    with Terminal("call", "ask.paint", "--data") as terminal:
        terminal.read_until("color (red, blue): ")
        terminal.type("green\n")
        terminal.read_until("expected one of 'red', 'blue', got 'green'")
        terminal.read_until("color (red, blue): ")
        terminal.type("red\n")
        terminal.read_until("times (integer): ")
        terminal.type("2\n")
        terminal.read_until("redred")
        assert terminal.ended() == 0
    with Terminal("call", "ask.paint", "color=red") as terminal:
        terminal.read_until("times (integer): ")
        wait_until_at_rest(terminal.pid)  # a signal before readline waits is seen at the next key only
        terminal.type("\x03")
        assert terminal.ended() == 130


FEATURES = Path(__file__).parents[2] / "mcp/tests/mcp_feature_server.py"


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
@pytest.mark.skipif(not FEATURES.is_file(), reason="needs the tests of operad-mcp")
def test_a_server_that_asks_while_it_works_is_answered_at_the_terminal(run: Run) -> None:
    configure(
        f'[sources.f]\ntype = "mcp"\ncommand = {sys.executable!r}\nargs = [{str(FEATURES)!r}, "stdio"]\n'
        'elicitation = "caller"\n'
    )
    with Terminal("call", "f.greet", "--data") as terminal:
        terminal.read_until("f.greet asks: What is your name?")
        terminal.read_until("Answer? [Y/n]: ")
        terminal.type("\n")
        terminal.read_until("name (string): ")
        terminal.type("Ada\n")
        terminal.read_until("Hello, Ada! True")
        assert terminal.ended() == 0


def test_ctrl_c_while_the_command_starts_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "operad_cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "operad_cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert run("list") == (130, "", "")


class Terminal:
    """The `operad` command at a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        import pty

        self._seen = ""
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-m", "operad_cli.main", *arguments])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._side)  # hangs up, which ends what still runs

    def type(self, text: str) -> None:
        os.write(self._side, text.encode())

    def read_until(self, text: str) -> None:
        while text not in self._seen:
            readable, _, _ = select.select([self._side], [], [], 20)
            assert readable, self._seen
            self._seen += os.read(self._side, 4096).decode()
        self._seen = self._seen.partition(text)[2]

    def ended(self) -> int:
        # What it still says has to be read, else it would wait for room.
        while select.select([self._side], [], [], 20)[0]:
            try:
                if not os.read(self._side, 4096):
                    break
            except OSError:  # the other side is closed
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# --- logs ----------------------------------------------------------------------------------------------

LOGGING = """
import logging
from operad import operation
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

@operation(namespace="logs", type="query")
async def warn() -> None:
    logging.getLogger("shop").warning("out of %s", "stock")
    with use_span(NonRecordingSpan(SpanContext(1, 2, False, TraceFlags(1)))):
        logging.getLogger("shop").warning("in a trace")
"""


def test_logs_are_json_lines_with_the_ids_of_their_trace(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ops" / "logs.py").write_text(LOGGING)
    code, _, err = run("call", "logs.warn", "--log-format", "json")
    assert code == 0
    plain, traced = (json.loads(line) for line in err.splitlines() if '"shop"' in line)
    assert {**plain, "time": ""} == {"time": "", "level": "warning", "logger": "shop", "message": "out of stock"}
    assert (traced["traceId"], traced["spanId"]) == (f"{1:032x}", f"{2:016x}")


# --- only what is needed -----------------------------------------------------------------------------

SLOW = """
[sources.dead]
type = "mcp"
command = "sleep"
args = ["60"]
connect_timeout = 50
"""


def test_a_call_opens_only_the_sources_that_may_have_it(run: Run) -> None:
    configure(SLOW)
    assert run("call", "text.head", "text=x", "--data")[0] == 0  # the suite would hang, were the server waited for


@pytest.fixture
def late_document() -> Iterator[tuple[str, threading.Event]]:
    """The URL of an OpenAPI document, which is there once the event is set."""
    may_answer = threading.Event()

    def late(request: BaseHTTPRequestHandler) -> None:
        may_answer.wait(30)
        paths = {"/": {"get": {"operationId": "late", "responses": {}}}}
        respond(request, json.dumps({"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": paths}))

    with http_server(late) as url:
        yield f"{url}/openapi.json", may_answer
        may_answer.set()


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_a_terminal_is_shown_what_there_is_and_the_rest_when_it_comes(
    run: Run, late_document: tuple[str, threading.Event]
) -> None:
    url, may_answer = late_document
    configure(f'[sources.api]\ntype = "openapi"\nspec = "{url}"\n{SLOW}')
    with Terminal("list") as terminal:
        terminal.read_until("text.head")
        terminal.read_until("so far; still starting: api, dead")
        may_answer.set()
        terminal.read_until("waiting for dead … (Ctrl-C to skip)")
        terminal.type("\x03")
        terminal.read_until("api.late")
        terminal.read_until("1 operation more, ")
        terminal.read_until("[sources.dead] is not loaded: skipped by Ctrl-C")
        assert terminal.ended() == 1


def test_a_list_leaves_out_what_takes_longer_to_start_than_it_may(
    run: Run, late_document: tuple[str, threading.Event]
) -> None:
    configure(f'[sources.dead]\ntype = "openapi"\nspec = "{late_document[0]}"\ntimeout = 50\n')
    for command in (["list"], ["search", "head"], ["list", "--json"]):
        for wait in ("0.3", "3", "15"):
            code, out, err = run(*command, "--wait", wait)
            assert code == 1
            if "text.head" in out:  # which takes its time on a busy machine as well
                break
        if "--json" in command:
            assert "text.head" in {spec["id"] for spec in json.loads(out)}
        else:
            assert "text.head" in out
            assert f"[sources.dead] is not loaded: still starting after {wait} s; use --wait SECONDS" in err


def test_a_log_is_told_which_sources_a_list_waits_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_PATIENCE", 0.1)
    monkeypatch.setattr(opening, "_SILENCE", 0.1)
    configure(SLOW.replace("= 50", "= 1"))
    code, out, err = run("list")
    assert code == 1
    assert "text.head" in out
    assert re.match("waiting for .*dead", err)  # and on a busy machine for the others as well


# --- completion --------------------------------------------------------------------------------------


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str) -> list[str]:
    monkeypatch.setenv("_OPERAD_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([])
    monkeypatch.delenv("_OPERAD_COMPLETE")
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]


def test_ids_and_fields_complete_from_what_was_seen_and_nothing_is_started(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, "operad call te") == []
    run("list")
    Path("ops/served.py").write_text("raise SystemExit('nothing may be loaded')")
    assert completed(monkeypatch, capsys, "operad call text.h") == ["text.head"]
    assert completed(monkeypatch, capsys, "operad call text.head ") == ["text=", "lines="]
    assert completed(monkeypatch, capsys, "operad call text.head text=x ") == ["lines="]
    assert "call" in completed(monkeypatch, capsys, "operad ca")


def test_values_of_enums_and_booleans_complete(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("ops/served.py").open("a") as file:
        file.write(
            "from typing import Literal\n@operation(namespace='text', type='query')\n"
            "async def sort(text: str, kind: Literal['up', 'down'] = 'up', stable: bool = True) -> str:\n"
            "    return text\n"
        )
    run("list")
    for words, expected in (
        ("kind=", ["kind=up", "kind=down"]),  # zsh, fish
        ("kind=d", ["kind=down"]),
        ("kind =", ["up", "down"]),  # bash makes three words of it
        ("kind = u", ["up"]),
        ("stable=", ["stable=true", "stable=false"]),
        ("text=", []),
    ):
        assert sorted(completed(monkeypatch, capsys, f"operad call text.sort {words}")) == sorted(expected)


# --- set-up and check-up -----------------------------------------------------------------------------


def test_init_writes_what_is_found_and_doctor_finds_it_well(run: Run) -> None:
    Path("operad.toml").unlink()
    Path("shop-openapi.json").write_text(
        json.dumps({"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": {
            "/a": {"get": {"operationId": "a", "responses": {"200": {"description": "d"}}}}},
            "servers": [{"url": "http://127.0.0.1:9"}]})
    )  # fmt: skip
    code, out, _ = run("init")
    assert code == 0
    assert "shop  openapi, shop-openapi.json" in out
    assert "ops  scanner, ops" in out
    assert run("init")[0] == 1
    listed = {spec["id"] for spec in json.loads(run("list", "--json")[1])}
    assert {"shop.a", "text.head"} <= listed
    checks = {check["what"]: check for check in json.loads(run("doctor", "--json")[1])}
    assert checks["source shop"]["status"] == "ok"
    assert all(check["status"] != "error" for check in checks.values())


def test_doctor_judges_the_published_schemas_of_operations(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "LARGEST", 10)
    checks = {check["what"]: check for check in json.loads(run("doctor", "--json")[1])}
    message = checks["schemas"]["message"]
    assert message.startswith("schemas that were not checked: ")
    assert "(10 characters" in message
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    checks = {check["what"]: check for check in json.loads(run("doctor", "--json")[1])}
    assert checks["schemas"]["fix"] == "pip install operad-cli[schemas]"


def test_what_is_wrong_with_a_published_schema_is_told_in_words() -> None:
    """Operations of a server may have such schemas; those of functions are refused at registration."""
    wrong = from_schema({"type": "object", "required": "a"})
    spec = OperationSpec(namespace="shop", name="a", type="query", input_schema=wrong)
    found = list(schemas.errors_of_schemas([spec, spec], 20))
    assert found == [("shop.a", "input_schema at $.required: 'a' is not of type 'array'")]


def test_a_pipe_is_never_cut_or_wrapped(run: Run) -> None:
    long = "words " * 60
    Path("ops/wordy.py").write_text(
        f'from operad import operation\n@operation\nasync def f() -> None:\n    """{long}"""\n'
    )
    code, out, _ = run("list")
    assert code == 0
    assert long.strip() in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []


def test_init_recognises_documents_by_their_content_and_names_them_by_their_title(run: Run) -> None:
    def document(title: str, operation: str) -> dict[str, object]:
        get = {"operationId": operation, "responses": {}}
        return {"openapi": "3.1.0", "info": {"title": title, "version": "1"}, "paths": {"/x": {"get": get}}}

    Path("operad.toml").unlink()
    Path("shop.json").write_text(json.dumps(document("My Shop API", "list_items_items_get")))
    Path("api.yaml").write_text(
        "# a comment\nopenapi: 3.0.3\ninfo:\n  version: 1\n  title: 'Weather'\npaths: {}\n"
    )
    Path("package.json").write_text('{"name": "x", "openapi-fetch": "3"}')
    Path("mcp.json").write_text('{"mcpServers": {}}')
    Path("jobs.py").write_text("from operad import operation\n\n@operation\ndef f() -> int:\n    return 1\n")
    code, out, _ = run("init", "--json")
    assert code == 0
    assert [(source["name"], source["type"], source["what"]) for source in json.loads(out)["sources"]] == [
        ("weather", "openapi", "api.yaml"),
        ("my-shop", "openapi", "shop.json"),
        ("mcp", "mcp", "mcp.json"),
        ("jobs", "scanner", "jobs.py"),
        ("ops", "scanner", "ops"),
    ]
    written = Path("operad.toml").read_text()
    assert written.count('# names = "fastapi"') == 1


def test_init_names_a_url_by_the_title_of_its_document(run: Run) -> None:
    def init(url: str) -> str:
        return str(json.loads(run("init", "--force", "--json", "--openapi", url)[1])["sources"][0]["name"])

    document = '{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": {}}'
    with http_server(lambda request: respond(request, document)) as base:
        assert init(f"{base}/openapi.json") == "shop"
    assert init(f"{base}/openapi.json") == "api"
