"""Parts by themselves: results, kinds, content blocks, errors, stored tasks, watched resources."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import mcp_types as types
import pytest

from operad import AccessControl, CallError, Identity, OperationContext, OperationSpec
from operad.wire import to_json
from operad_mcp import MCPAuth, MCPClientConfig, map_mcp_content_blocks
from operad_mcp.client.tasks import Handles
from operad_mcp.client.tools import inner_schema, unwrapped
from operad_mcp.config import MCPCall
from operad_mcp.content import as_text
from operad_mcp.errors import ServerError, classify
from operad_mcp.server.asking import HandshakeClient, checked
from operad_mcp.server.changes import Watching
from operad_mcp.server.door import Door
from operad_mcp.server.kinds import listing_of
from operad_mcp.server.options import MCPServeConfig
from operad_mcp.server.resources import Resources
from operad_mcp.server.results import bounded, data_result, error_result, text_block
from operad_mcp.wire.callbacks import elicited
from operad_mcp.wire.calls import Calls, Clock
from plugins.mcp.tests.peers import Caller, Log, Patch, fails, raw, table, until, watched

URL = "http://127.0.0.1:9/mcp"

# --- results -------------------------------------------------------------------------------------------


@table("error_results")
def test_an_error_is_text_for_models_and_an_object_for_programs(error: Any, text: str, wire: Any) -> None:
    made = error_result(CallError(*error))
    assert made == {"content": [text_block(text)], "_meta": {"operad/error": wire}, "isError": True}


@pytest.mark.parametrize("more", [0, 1])
def test_details_of_an_error_above_4000_characters_are_cut_in_its_text_and_left_out_of_its_object(
    more: int,
) -> None:
    made = error_result(CallError("X", "m", {"a": "x" * (3_992 + more)}))
    assert len(made["content"][0]["text"]) == len("X: m\n") + 4_000
    assert ("details" in made["_meta"]["operad/error"]) is not more


@pytest.mark.parametrize("less", [0, 1])
def test_a_result_of_exactly_the_limit_is_whole(less: int) -> None:
    whole = data_result({"a": "x" * 2_000})
    slim = {**whole, "content": [text_block("The result is in structuredContent.")]}
    limit = len(to_json(slim)) - less
    assert (bounded(slim, limit, declares_output=False) is slim) is not less
    assert (bounded(whole, limit, declares_output=True) == slim) is not less
    blocks = [text_block("a" * 100), text_block("b" * 100)]
    cut = bounded({"content": blocks, "isError": True}, len(to_json(blocks)) - 3 - 60 * less, declares_output=True)
    assert (cut["isError"], cut["content"][:2] == blocks) == (True, not less)
    assert ("2 of 2 blocks are left" in cut["content"][-1]["text"]) is bool(less)


@table("kinds")
def test_an_operation_is_listed_by_its_kind(metadata: Any, where: str | None) -> None:
    listing = listing_of([OperationSpec(namespace="m", name="x", metadata={"mcp": metadata})], "id")
    found = {name for name in ("tools", "prompts", "resources", "templates") if getattr(listing, name)}
    assert found == ({where} if where else set())


@table("wrapped_results")
def test_what_an_operad_server_wrapped_is_unwrapped(tool: Any, inner: Any, sent: Any, found: Any) -> None:
    assert inner_schema(tool) == inner
    assert unwrapped(sent) == found


@table("other_blocks")
def test_what_is_no_block_of_the_protocol_is_text_with_its_json(sent: Any, text: str) -> None:
    (block,) = map_mcp_content_blocks([sent])
    assert block.to_wire() == {"type": "text", "text": text}
    assert as_text({1}) == "{1}"


@table("annotations")
def test_annotations_of_a_wrong_type_are_left_out(sent: Any, found: Any) -> None:
    (block,) = map_mcp_content_blocks([{"type": "text", "text": "a", "annotations": sent}])
    told = block.annotations
    assert (told and [told.audience and list(told.audience), told.priority, told.last_modified]) == found


# --- errors and questions ------------------------------------------------------------------------------


@table("visits")
def test_an_address_is_visited_only_if_the_server_asks_for_that(code: int, data: Any, url: str | None) -> None:
    error: Any = classify(ServerError(code, "m", data), "s")
    assert error.details.get("url") == url
    assert ("visit" in error.message) is (url is not None)
    assert ("data" in error.details) is (data is not None)


@pytest.mark.parametrize(("declared", "other"), [("form", "url"), ("url", "form")])
async def test_a_user_is_asked_only_in_the_way_that_the_client_declares(declared: str, other: str) -> None:
    elicitation = types.ElicitationCapability.model_validate({declared: {}})
    known = types.ClientCapabilities(elicitation=elicitation)
    context = SimpleNamespace(session=SimpleNamespace(client_capabilities=known))
    url = "https://a/" if other == "url" else None
    client = HandshakeClient(context)
    assert client.opens_urls is (declared == "url")
    error = await fails(client.elicit("m", {}, url, None))
    assert error.details["requiredCapabilities"] == {"elicitation": {other: {}}}
    for asking, name in ((client.roots(None), "roots"), (client.sample({}, None), "sampling")):
        assert (await fails(asking)).details["requiredCapabilities"] == {name: {}}


def test_an_answer_of_a_model_that_uses_a_tool_is_an_answer_and_a_wrong_one_is_named() -> None:
    use = {"type": "tool_use", "id": "1", "name": "n", "input": {}}
    answer = {"role": "assistant", "model": "m", "stopReason": "toolUse", "content": use}
    assert checked("sampling/createMessage", answer, None)["content"] == use
    for wrong in ({**answer, "stopReason": "endTurn"}, {"role": "assistant"}):
        with pytest.raises(ValueError, match="content"):
            checked("sampling/createMessage", wrong, None)
    with pytest.raises(ValueError, match=r"^roots\.0\.uri: "):
        checked("roots/list", {"roots": [{"uri": 5}]}, None)
    assert checked("elicitation/create", {"action": "decline"}, {"required": ["a"]}) == {"action": "decline"}


async def test_a_message_belongs_to_the_innermost_call_until_that_ends() -> None:
    calls, (one, two) = Calls("s"), (MCPCall(server="s", operation_id=each) for each in ("a", "b"))
    with calls.running(one, Clock(None)):
        with calls.running(two, Clock(None)):
            assert calls.asking() is two
        assert (calls.asking() is one, calls.any_running) == (True, True)
    assert (calls.asking(), calls.any_running) == (MCPCall(server="s"), False)


async def test_a_user_is_asked_to_visit_the_address_that_a_server_names() -> None:
    caller = Caller()
    call = MCPCall(server="s", client=caller)
    await elicited({"mode": "url", "url": "https://a/\nb", "message": "Go"}, call)
    assert caller.asked == [("s asks: Go", None, "https://a/ b", None)]
    error = await fails(elicited({}, MCPCall(server="s")))
    assert "does not state for which call" in error.message


def test_a_log_of_an_http_request_has_no_query_and_no_password(caplog: Log) -> None:
    caplog.set_level(logging.INFO, "httpx2")
    for arguments in (("GET", httpx2.URL("http://u:hush@h/p?key=hush")), ({"a": 1},)):
        logging.getLogger("httpx2").info("%s" * len(arguments), *arguments)
    assert [record.getMessage() for record in caplog.records] == ["GEThttp://h/p", "{'a': 1}"]


# --- stored tasks --------------------------------------------------------------------------------------


def test_a_task_is_found_by_its_key_until_it_expires(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    now = 1_000_000.0
    monkeypatch.setattr("operad_mcp.client.tasks.time", SimpleNamespace(time=lambda: now, monotonic=lambda: now))
    params: Any = {"arguments": {"a": 1, "b": 2}}
    accounts = [MCPAuth(type="oauth", account=each) for each in ("a", "b")]
    handles, other = (Handles(MCPClientConfig(url=URL, auth=each)) for each in accounts)
    context = OperationContext(idempotency_key="k")
    handles.keep("one", None, params, context, "n")
    handles.keep("two", 60.0, params, context, "m")
    handles.keep("none", 60.0, params, OperationContext(), "o")
    assert handles.find({"arguments": {"b": 2, "a": 1}}, context, "n") == "one"
    assert handles.find(params, OperationContext(idempotency_key="k", identity=Identity("i")), "n") is None
    assert (other.find(params, context, "n"), handles.find(params, OperationContext(), "o")) == (None, None)
    week = 7 * 86_400
    for seconds, found in (
        (60, ["one", "two"]),
        (61, ["one", None]),
        (week, ["one", None]),
        (week + 1, [None] * 2),
    ):
        now = 1_000_000.0 + seconds
        assert [handles.find(params, context, name) for name in ("n", "m")] == found


# --- watched resources ---------------------------------------------------------------------------------


async def test_a_watched_resource_is_followed_once_for_each_caller_until_the_last_one_leaves() -> None:
    running, gate = list[str](), asyncio.Queue[None]()

    async def subscribe(input: Any, context: OperationContext) -> Any:
        running.append(input["uri"])
        try:
            await gate.get()
            yield input
        finally:
            running.remove(input["uri"])

    async def updated(*_: Any) -> None: ...

    made = watched(subscribe, access_control=AccessControl(required_scopes=("w",)))
    raw(made, "own", 1, metadata={"mcp": {"kind": "resource", "uri": "own:x"}})
    template = {"kind": "resourceTemplate", "uriTemplate": "up://t/{x}", "name": "t"}
    raw(made, "resources.templates.t", 1, metadata={"mcp": template})
    resources = Resources(door := Door(made, MCPServeConfig()))
    watching = Watching(door, resources, updated)
    ann, eve = (
        SimpleNamespace(request=SimpleNamespace(scope={"operad.caller": Identity(name, scopes)}))
        for name, scopes in (("ann", {"w"}), ("eve", set[str]()))
    )
    assert [await watching.join(each, "up://x") for each in (ann, ann, eve)] == [True, True, False]
    await until(lambda: running == ["up://x"])
    watching.leave(ann, "up://x")
    gate.put_nowait(None)
    await until(lambda: not running)  # the subscription has ended, and is made again
    assert [await watching.join(ann, uri) for uri in ("up://x", "up://t/1", "own:x")] == [True] * 3
    await until(lambda: running == ["up://x", "up://t/1"])
    for left in (["up://x", "up://t/1"], ["up://t/1"]):
        watching.leave(ann, "up://x")
        await until(lambda left=left: running == left)  # type: ignore[misc]  # its type is that of the list
    assert [resources.target(uri) is not None for uri in ("own:x", "up://t/1", "up://x")] == [True, True, False]
    await watching.aclose()
    assert running == []
