"""The main job, run as a reader of the README runs it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request

import pytest

from operad_cli.main import main
from tests.kit import OPERAD


def shown_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a demo prints that ends by itself, without an error."""
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.err) == (0, "")
    return shown.out


def test_the_demo_shows_an_envelope_of_each_source_a_stream_and_a_nested_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = json.loads(shown_by(capsys, "--json"))
    assert {"shop.getBook", "time.convert_time", "demo.offer"} <= {spec["id"] for spec in shown["operations"]}
    calls = {call["operationId"]: call["envelope"] for call in shown["calls"]}
    assert {envelope["meta"]["source"] for envelope in calls.values()} == {"local", "http", "mcp"}
    events = [c["envelope"] for c in shown["calls"] if c["operationId"] == "shop.orderEvents"]
    assert [event["data"]["state"] for event in events] == ["accepted", "packed", "shipped"]
    assert [event["meta"]["lastEventId"] for event in events] == ["1", "2", "3"]
    nested = calls["demo.offer"]["data"]
    assert nested["book"]["title"] == "Solaris"
    assert nested["customer_time"]["timezone"] == "Asia/Tokyo"


def test_the_demo_for_people_names_each_source(capsys: pytest.CaptureFixture[str]) -> None:
    shown = shown_by(capsys)
    assert [word for word in ("local", "http", "mcp", "shop.orderEvents", "demo.offer") if word not in shown] == []


def test_the_demo_that_is_kept_leaves_the_front_door_open_until_an_interrupt() -> None:
    process = subprocess.Popen(
        [OPERAD, "demo", "--keep"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            said = ""
            while "for an MCP host to start" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            urls = dict(re.findall(r"(explorer|OpenAPI|MCP) +(http\S+)", said))
            with urllib.request.urlopen(urls["explorer"]) as page:
                assert b"page.js" in page.read()
            with urllib.request.urlopen(urls["OpenAPI"]) as document:
                assert "/operations/shop.getBook" in json.load(document)["paths"]
            assert (
                json.loads(said.split("/mcp\n")[1].splitlines()[0])["mcpServers"]["operad"]["url"] == urls["MCP"]
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()  # what failed above must not wait for it
