"""What the command shows of a call while it runs, the trace that it is part of, and how sparingly it logs."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from operad_cli.output.logs import JSONLines, Paragraphs, Sparing
from plugins.cli.tests.conftest import Run
from plugins.cli.tests.test_daily import Terminal

OPERATIONS = '''
import asyncio
from operad import operation

@operation(namespace="t")
async def slow(context) -> int:
    """Something that takes its time."""
    await context.progress(1, 4, "rinsing")
    context.report("upload", progress=12 * 1024 * 1024, total=48 * 1024 * 1024, unit="By")
    context.report("retry", "HTTP 503\\x1b[31m", attempt=1, delay=0.25)
    await asyncio.sleep(0.2)
    return 7

@operation(namespace="t")
async def outer(context) -> int:
    return (await context.env.t.slow()).data

@operation(namespace="t", type="query")
async def carried(context) -> dict:
    return {key: value for key, value in context.metadata.items() if key != "traceparent"}

@operation(namespace="t", type="query")
async def parent(context) -> str:
    return context.metadata["traceparent"][3:35]
'''
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_trace_shows_what_calls_told_while_they_ran(run: Run) -> None:
    code, out, _ = run("trace", "t.outer")
    assert code == 0
    assert "1 of 4, 25 % rinsing" in out
    assert "upload 12.0 of 48.0 MiB, 25 %" in out
    assert "retry HTTP 503 [31m (again in 0.2 s)" in out
    ((outer,),) = (json.loads(run("trace", "t.outer", "--json")[1]),)
    (slow,) = outer["calls"]
    assert "reports" not in outer
    assert [report["kind"] for report in slow["reports"]] == ["progress", "upload", "retry"]
    assert (slow["reports"][2]["attempt"], slow["reports"][1]["unit"]) == (1, "By")


def test_a_call_is_part_of_the_trace_that_the_environment_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-b7ad6b7169203331-01")
    monkeypatch.setenv("TRACESTATE", "a=1")
    monkeypatch.setenv("BAGGAGE", "user=alice")
    assert json.loads(run("call", "t.carried", "--data")[1]) == {"tracestate": "a=1", "baggage": "user=alice"}
    assert run("call", "t.parent", "--data")[1].strip() == TRACE
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    assert json.loads(run("call", "t.carried", "--data")[1]) == {"baggage": "user=alice"}


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_a_terminal_shows_how_far_a_call_is_and_nothing_of_it_is_left(run: Run) -> None:
    with Terminal("call", "t.slow", "--data") as terminal:
        terminal.read_until("\r\x1b[2Kt.slow: 1 of 4, 25 % rinsing")
        terminal.read_until("retry HTTP 503 [31m (again in 0.2 s)")
        terminal.read_until("\r\x1b[2K7\r\n")
        assert terminal.ended() == 0


def test_without_a_terminal_nothing_is_shown_while_a_call_runs(run: Run) -> None:
    assert run("call", "t.slow", "--data") == (0, "7\n", "")


def test_a_flood_of_records_is_thinned_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    sparing, written = Sparing(), []

    def log(line: int, message: str = "refused") -> None:
        record = logging.LogRecord("operad", logging.WARNING, "served.py", line, message, None, None)
        if sparing.filter(record):
            written.append(json.loads(JSONLines().format(record)))

    for _ in range(1_000):
        log(1)
    log(2, "something else")
    assert [line["message"] for line in written] == ["refused"] * 20 + ["something else"]
    assert not any("leftOut" in line for line in written)
    now[0] = 1.0
    log(1)
    assert (len(written), written[-1]["leftOut"]) == (22, 980)
    for line in range(3, 2_000):
        log(line)
    assert len(written) < 250


def test_every_statement_of_the_flood_of_a_command_is_heard_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ops" / "logs.py").write_text(
        "import logging\nfrom operad import operation\n\n"
        '@operation(namespace="logs")\nasync def flood() -> None:\n'
        '    for number in range(500):\n        logging.getLogger("shop").warning("no %s", number)\n'
        '    logging.getLogger("shop").error("the end")\n'
    )
    code, _, err = run("call", "logs.flood", "--log-format", "json")
    lines = [json.loads(line) for line in err.splitlines()]
    assert code == 0
    assert [line["message"] for line in lines if line["logger"] == "shop"] == [
        *(f"no {number}" for number in range(20)),
        "the end",
    ]


def test_a_paragraph_of_the_log_names_the_line_that_raised(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        raised = error
    logger = logging.getLogger("operad.tests.paragraphs")
    logger.propagate = False
    logger.addHandler(Paragraphs())
    logger.error("it failed", exc_info=raised)
    assert raised.__traceback__ is not None
    assert f"error: it failed at {__file__}:{raised.__traceback__.tb_lineno}" in capsys.readouterr().err
