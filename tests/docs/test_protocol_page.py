"""docs/protocol.md and docs/protocol/: made from the code, and true of what a hub really sends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from operad import (
    CallError,
    CallHandler,
    Identity,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    from_remote,
)
from operad_auth import StaticTokens
from operad_websocket import Hub, Limits, WebSocketTransport
from tools import protocol

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
FOLDER = ROOT / "docs" / "protocol"


def test_the_schemas_and_the_asyncapi_document_are_up_to_date() -> None:
    assert protocol.outdated() == [], "run tools/protocol.py"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.*.json")), ids=lambda path: path.stem)
def test_each_schema_is_one_and_is_on_the_page(path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == path.stem
    assert f"`{path.stem}" in PAGE


def test_the_asyncapi_document_refers_to_what_there_is() -> None:
    document = json.loads((FOLDER / "asyncapi.json").read_text())
    assert document["asyncapi"].startswith("3.")
    for name, message in document["components"]["messages"].items():
        assert (FOLDER / message["payload"]["$ref"]).is_file()
        assert name in document["channels"]["hub"]["messages"]
    used = {
        message["$ref"].rpartition("/")[2]
        for operation in document["operations"].values()
        for message in operation["messages"]
    }
    assert used == set(document["components"]["messages"])


async def test_what_hub_and_spokes_really_send_is_what_the_schemas_say(monkeypatch: pytest.MonkeyPatch) -> None:
    from operad_websocket import _connection

    frames: list[dict[str, Any]] = []

    def tapped(method: Any) -> Any:
        def tap(self: Any, data: bytes) -> Any:
            frames.append(json.loads(data))
            return method(self, data)

        return tap

    monkeypatch.setattr(_connection.Connection, "_deliver", tapped(_connection.Connection._deliver))
    monkeypatch.setattr(_connection.Connection, "_take", tapped(_connection.Connection._take))
    await converse()
    schemas = {
        path.stem: jsonschema.Draft202012Validator(json.loads(path.read_text()))
        for path in FOLDER.glob("*.*.json")
    }
    for frame in frames:
        if frame["type"] in schemas:
            schemas[frame["type"]].validate(frame)
    seen = {frame["type"] for frame in frames}
    assert seen >= set(schemas) - {"link.authenticate", "link.authenticated"}, set(schemas) - seen


async def converse() -> None:
    """A conversation that has every frame."""
    registry = OperationRegistry()

    async def echo(input: Any, context: Any) -> Any:
        return input

    async def count(input: Any, context: Any) -> Any:
        for number in range(200):
            yield {"number": number, "text": "x" * 10_000}

    registry.register(OperationSpec(namespace="a", name="echo", type="query"), echo)
    registry.register(OperationSpec(namespace="a", name="count", type="subscription"), count)
    tokens = StaticTokens({"w": Identity("worker"), "c": Identity("client", ["x"], {"doc:1": ["read"]})})
    async with Hub(tokens, port=0, limits=Limits(topics=50)) as hub, aiohttp.ClientSession() as session:
        worker, client = WebSocketTransport(hub.url, token="w"), WebSocketTransport(hub.url, token="c")
        async with CallHandler(registry, worker), PendingRequestMap(client) as calls:
            large = "x" * 200_000
            assert (await calls.call("a.echo", {"text": large}, parent_request_id="p")).data == {"text": large}
            assert len([item async for item in calls.subscribe("a.count", credit=8)]) == 200
            async for _ in calls.subscribe("a.count"):
                break
            with pytest.raises(CallError):
                await calls.call("a.nothing")
            remote = await from_remote(client)
            await remote.aclose()
            raw = await session.ws_connect(hub.url, protocols=("operad.v1", "operad.authenticate"))
            await raw.send_json({"type": "link.authenticate", "id": "1", "payload": {"token": "c"}})
            assert (await raw.receive_json(timeout=30))["type"] == "link.authenticated"
            await raw.send_json(
                {"type": "link.register", "id": [1], "payload": {"topics": [f"op:x.{n}" for n in range(60)]}}
            )
            answer = await raw.receive_json(timeout=30)
            assert (answer["type"], answer["id"]) == ("link.error", [1])
            await raw.send_json({"type": "link.register", "payload": {"topics": ["op:a.echo"]}})
            assert (await raw.receive_json(timeout=30))["payload"]["refused"]
            await raw.close()


def test_the_permissions_on_the_page_are_those_that_are_tested() -> None:
    tested = (ROOT / "plugins" / "nats" / "tests" / "test_nats_permissions.py").read_text(encoding="utf-8")
    lists = re.findall(r"(?:publish|subscribe): \{ allow: \[.*?\] \}", tested)
    assert len(lists) == 6
    assert [found for found in lists if found not in PAGE] == []


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    limits = Limits()
    for words in (
        f"{limits.calls:,} (`limits.calls`)",
        f"{limits.links:,} (`limits.links`)",
        f"{limits.topics:,} (`limits.topics`)",
        f"{limits.unfinished // 2**20} MiB (`limits.unfinished`)",
        f"{limits.handshake:g} s (`limits.handshake`)",
        f"| {limits.handshakes}, of one address {limits.handshakes_per_address} |",
        f"reserved for this identity for {limits.grace:g} s",
    ):
        assert words in PAGE, words


def test_the_scripts_use_no_command_that_the_page_does_not_name() -> None:
    """An ACL made from the page would break."""
    scripts = (ROOT / "plugins" / "redis" / "src" / "operad_redis" / "_scripts.py").read_text(encoding="utf-8")
    listed = PAGE[PAGE.index("`EVALSHA") : PAGE.index("All participants of one bus")]
    named = set(re.findall(r"[A-Z]{3,}", listed))
    used = set(re.findall(r"redis\.p?call\('([A-Z]+)'", scripts))
    assert used - named == set()


def test_the_json_on_the_page_is_what_the_schemas_say() -> None:
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.S)]
    assert len(examples) >= 4
    for example in examples:
        name = "operation" if "namespace" in example else example["type"]
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        jsonschema.validate(example, json.loads(text), cls=jsonschema.Draft202012Validator)
