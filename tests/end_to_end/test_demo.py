"""The main job, run as a reader of the README runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

OPERAD = Path(sys.executable).with_name("operad")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([OPERAD, *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_the_demo_shows_an_envelope_of_each_source_a_stream_and_a_nested_call() -> None:
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert {"shop.getBook", "time.convert_time", "demo.offer"} <= {spec["id"] for spec in shown["operations"]}
    calls = {call["operationId"]: call["envelope"] for call in shown["calls"]}
    assert {envelope["meta"]["source"] for envelope in calls.values()} == {"local", "http", "mcp"}
    events = [c["envelope"] for c in shown["calls"] if c["operationId"] == "shop.orderEvents"]
    assert [event["data"]["state"] for event in events] == ["accepted", "packed", "shipped"]
    assert [event["meta"]["lastEventId"] for event in events] == ["1", "2", "3"]
    nested = calls["demo.offer"]["data"]
    assert nested["book"]["title"] == "Solaris"
    assert nested["customer_time"]["timezone"] == "Asia/Tokyo"


def test_the_demo_for_people_ends_by_itself_and_names_each_source() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("local", "http", "mcp", "shop.orderEvents", "demo.offer"):
        assert word in done.stdout
