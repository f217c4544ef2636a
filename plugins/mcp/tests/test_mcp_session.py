"""A session over a transport that records what is sent: requests, answers, and what a server asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types
import pytest
from mcp.shared import inbound, subscriptions
from mcp_types import version as sdk_versions

from operad import CallError
from operad_mcp import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault, ServerError, Unreadable
from operad_mcp.wire import protocol
from operad_mcp.wire.callbacks import Callbacks
from operad_mcp.wire.calls import Calls
from operad_mcp.wire.dialing import negotiate
from operad_mcp.wire.link import Link
from operad_mcp.wire.messages import Answer, Json, encode, message_of
from operad_mcp.wire.protocol import ServerLogger
from operad_mcp.wire.session import Session
from operad_mcp.wire.watching import Watchers, listen, updates
from plugins.mcp.tests.peers import Log, Patch, fails, table


class Recorded(Link):
    """A transport without a server: `sent` has what went out, and its JSON form is checked as on a wire."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.sent: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.fault: Fault | None = None

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        encode(message)
        if self.fault is not None:
            raise self.fault
        self.sent.append(message)
        self.headers.append(headers)


def opened(watchers: Watchers | None = None, **options: Any) -> tuple[Session, Recorded, Callable[[Json], None]]:
    """A session, its transport, and what takes a message of the server."""
    config = MCPClientConfig(**{"command": None if "url" in options else "none", **options})
    logger = ServerLogger("s")
    notified = (watchers or Watchers(None)).notified
    session = Session(config, Callbacks(config, logger, Calls("s")), notified, logger)
    link = Recorded(session)
    session.link = link

    def arrive(message: Json) -> None:
        found = message_of(message)
        assert found is not None
        session.receive(found)

    return session, link, arrive


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(asking: Awaitable[Any]) -> asyncio.Future[Any]:
    """Something that has sent its request, and waits for the response."""
    task = asyncio.ensure_future(asking)
    await turns()
    return task


async def talked(link: Recorded, arrive: Callable[[Json], None], asking: Awaitable[Any], *replies: Json) -> Any:
    """The result of something that sends requests, each of which gets the next of the replies."""
    task = asyncio.ensure_future(asking)
    for reply in replies:
        await turns()
        arrive({"id": next(each["id"] for each in reversed(link.sent) if "id" in each), **reply})
    return await task


def progress(arrive: Callable[[Json], None], token: Any, done: Any) -> None:
    """Send a report of progress."""
    arrive({"method": "notifications/progress", "params": {"progressToken": token, "progress": done}})


def deep(levels: int) -> Any:
    """A list in a list in a list, so many times."""
    made: Any = 0
    for _ in range(levels):
        made = [made]
    return made


def discovered(**more: Any) -> Json:
    return {"result": {"supportedVersions": ["2025-11-25", protocol.MODERN], **more}}


async def modern(**options: Any) -> tuple[Session, Recorded, Callable[[Json], None]]:
    """A session of the stateless protocol, of which nothing was recorded yet."""
    session, link, arrive = opened(**options)
    await talked(link, arrive, session.discover(), discovered())
    link.sent.clear()
    link.headers.clear()
    return session, link, arrive


async def test_the_first_answer_to_a_request_counts_and_an_id_may_come_back_as_text() -> None:
    session, link, arrive = opened()
    asking = await begun(session.request("tools/list", {}))
    for result in ({"tools": [1]}, {"tools": [2]}):
        arrive({"id": str(link.sent[0]["id"]), "result": result})
    assert await asking == {"tools": [1]}


async def test_an_error_of_the_server_and_the_end_of_the_connection_are_two_types() -> None:
    session, link, arrive = opened()
    closed = {"error": {"code": -32000, "message": "Connection closed"}}
    with pytest.raises(ServerError, match="Connection closed"):
        await talked(link, arrive, session.request("a", {}), closed)
    asking = await begun(session.request("a", {}))
    link.end()
    with pytest.raises(ConnectionLost):
        await asking
    with pytest.raises(ConnectionLost) as unsent:
        await session.request("a", {})
    assert unsent.value.sent is False


async def test_progress_is_reported_in_order_and_before_the_result_though_a_report_raises() -> None:
    session, link, arrive = opened()
    seen: list[float] = []

    async def heard(done: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        seen.append(done)
        if done == 2:
            raise ValueError("no")

    asking = await begun(session.request("tools/call", {"name": "a"}, progress=heard))
    for done in (1, 2, 3, "many", True):
        progress(arrive, link.sent[0]["params"]["_meta"]["progressToken"], done)
    arrive({"id": link.sent[0]["id"], "result": {}})
    assert await asking == {}
    assert seen == [1, 2, 3]


async def test_notifications_without_use_are_left_out_and_the_answer_behind_them_arrives(caplog: Log) -> None:
    caplog.set_level(logging.DEBUG, "operad.mcp")
    session, link, arrive = opened()
    seen: list[float] = []

    async def heard(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    asking = await begun(session.request("tools/call", {"name": "a"}, progress=heard))
    arrive({"method": "notifications/cancelled", "params": {"requestId": []}})
    progress(arrive, link.sent[0]["params"]["_meta"]["progressToken"], 10**400)
    progress(arrive, [], 1)
    arrive({"method": "notifications/message", "params": {"level": deep(2_000), "data": "x"}})
    arrive({"id": link.sent[0]["id"], "result": {}})
    assert await asking == {}
    assert seen == []
    assert caplog.text.count("is dropped") == 3


def test_an_error_that_is_nested_too_deeply_for_its_text_is_an_error_of_the_request() -> None:
    nested = deep(200_000)
    for wrong in ({"error": nested}, {"error": {"message": nested}}, {"neither": nested}):
        found = message_of({"id": 1, **wrong})
        assert isinstance(found, Answer)
        assert found.id == 1
        assert "nested too deeply" in str(found.error)


async def test_a_request_that_is_cancelled_is_cancelled_at_the_server_and_the_handshake_is_not() -> None:
    session, link, _ = opened()
    for method in ("tools/call", "initialize"):
        asking = await begun(session.request(method, {}))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert [message["method"] for message in link.sent] == ["tools/call", "notifications/cancelled", "initialize"]
    assert link.sent[1]["params"] == {"requestId": link.sent[0]["id"]}


async def test_what_a_server_asks_is_answered_once_for_each_id_and_bounded(caplog: Log) -> None:
    caplog.set_level(logging.DEBUG, "operad.mcp")
    hold = asyncio.Event()

    async def roots() -> list[str]:
        await hold.wait()
        return ["file:///a"]

    session, link, arrive = opened(roots=roots)
    for number in [1, 1, 1, *range(2, 5_000)]:
        arrive({"id": number, "method": "roots/list"})
    assert session.crowded
    hold.set()
    await session.room()
    await turns()
    ids = [message["id"] for message in link.sent]
    assert ids.count(1) == 1
    assert len(ids) == 1_024
    assert caplog.text.count("roots/list is dropped: its id is in use") == 2
    assert caplog.text.count("roots/list is dropped: too many requests are in progress") == 4_999 - 1_024
    await session.aclose()


async def test_a_request_that_the_server_takes_back_is_not_answered() -> None:
    async def roots() -> list[str]:
        await asyncio.sleep(60)
        return []

    session, link, arrive = opened(roots=roots)
    arrive({"id": "r", "method": "roots/list"})
    await turns()
    arrive({"method": "notifications/cancelled", "params": {"requestId": "r"}})
    await turns()
    assert link.sent == []
    await session.aclose()


@pytest.mark.parametrize(
    ("method", "code"),
    [("elicitation/create", -32603), ("sampling/createMessage", -32603), ("roots/list", -32600), ("no", -32601)],
)
async def test_an_answer_that_cannot_be_sent_is_an_error_for_the_server(method: str, code: int) -> None:
    unsendable = {"action": "accept", "content": {"a": object()}}
    session, link, arrive = opened(elicitation=returns(unsendable), sampling=returns({"role": "nobody"}))
    arrive({"id": 1, "method": method, "params": {"message": "m"}})
    await turns()
    assert [message["error"]["code"] for message in link.sent] == [code]
    await session.aclose()


def test_the_names_of_the_protocol_are_those_of_the_sdk() -> None:
    assert sdk_versions.HANDSHAKE_PROTOCOL_VERSIONS == protocol.HANDSHAKES
    assert sdk_versions.MODERN_PROTOCOL_VERSIONS == (protocol.MODERN,)
    for ours, theirs in (
        (protocol.META_VERSION, mcp_types.PROTOCOL_VERSION_META_KEY),
        (protocol.META_CLIENT, mcp_types.CLIENT_INFO_META_KEY),
        (protocol.META_CAPABILITIES, mcp_types.CLIENT_CAPABILITIES_META_KEY),
        (protocol.META_LOG_LEVEL, mcp_types.LOG_LEVEL_META_KEY),
        (protocol.META_SERVER, mcp_types.SERVER_INFO_META_KEY),
        (protocol.META_SUBSCRIPTION, subscriptions.SUBSCRIPTION_ID_META_KEY),
        (protocol.VERSION_HEADER, inbound.MCP_PROTOCOL_VERSION_HEADER),
        (protocol.METHOD_HEADER, inbound.MCP_METHOD_HEADER),
        (protocol.NAME_HEADER, inbound.MCP_NAME_HEADER),
        (protocol.UNSUPPORTED_VERSION, mcp_types.UNSUPPORTED_PROTOCOL_VERSION),
    ):
        assert ours == theirs
    assert inbound.NAME_BEARING_METHODS.items() <= protocol.NAMED_BY.items()


@pytest.mark.parametrize("text", ["plain", "a b", "", " edge", "é", "=?base64?eA==?=", "a\nb", "x" * 300])
def test_a_header_of_the_protocol_is_written_as_the_sdk_writes_it(text: str) -> None:
    assert protocol.header_value(text) == inbound.encode_header_value(text)


# --- negotiation ---------------------------------------------------------------------------------------


def refused(code: int, data: Any) -> Json:
    return {"error": {"code": code, "message": "no", "data": data}}


async def test_a_server_that_names_this_revision_in_its_refusal_is_asked_once_more() -> None:
    session, link, arrive = opened()
    first = refused(protocol.UNSUPPORTED_VERSION, {"supported": ["1", protocol.MODERN]})
    await talked(link, arrive, session.discover(), first, discovered())
    assert session.modern
    assert [each["method"] for each in link.sent] == ["server/discover"] * 2
    assert {each[protocol.VERSION_HEADER] for each in link.headers} == {protocol.MODERN}


@table("refusals")
async def test_any_other_refusal_of_the_question_is_its_answer(code: int, data: Any) -> None:
    session, link, arrive = opened()
    with pytest.raises(ServerError):
        await talked(link, arrive, session.discover(), refused(code, data))
    assert len(link.sent) == 1
    assert not session.modern


@table("unknown_versions")
async def test_an_answer_to_the_negotiation_without_a_known_version_is_unreadable(
    method: str, found: Any, expected: str
) -> None:
    session, link, arrive = opened()
    with pytest.raises(Unreadable, match=expected):
        await talked(link, arrive, getattr(session, method)(), {"result": found})
    assert len(link.sent) == 1
    assert session.protocol_version == ""


@pytest.mark.parametrize("version", protocol.HANDSHAKES)
async def test_the_handshake_takes_the_version_of_the_server_and_is_confirmed(version: str) -> None:
    session, link, arrive = opened(elicitation="caller", sampling="caller", roots=[])
    await talked(link, arrive, session.initialize(), {"result": {"protocolVersion": version}})
    assert (session.protocol_version, session.modern) == (version, False)
    asked, confirmed = link.sent
    assert asked["params"]["protocolVersion"] == protocol.HANDSHAKES[-1]
    assert asked["params"]["clientInfo"]["name"] == "operad"
    assert asked["params"]["capabilities"] == {
        "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True},
        "extensions": {protocol.TASKS: {}},
    }  # fmt: skip
    assert confirmed == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert link.headers == [{}, {protocol.VERSION_HEADER: version}]


@table("descriptions")
async def test_the_description_of_a_server_is_kept_as_far_as_it_is_known_and_clean(
    found: Json, server: Json, capabilities: Json, instructions: str | None
) -> None:
    session, link, arrive = opened()
    await talked(link, arrive, session.discover(), discovered(**found))
    assert (session.server, session.capabilities, session.instructions) == (server, capabilities, instructions)


@table("negotiations")
async def test_the_protocol_is_that_of_the_first_answer_that_settles_it(
    mode: Any, legacy: bool, replies: list[Any], methods: list[str], falls_back: bool | None
) -> None:
    session, link, arrive = opened(mode=mode)
    known = {"modern": discovered(), "old": {"result": {"protocolVersion": "2025-11-25"}}}
    given = [known[each] if isinstance(each, str) else refused(each, None) for each in replies]
    asking = talked(link, arrive, negotiate(session, session.config, legacy=legacy), *given)
    if falls_back is None:
        with pytest.raises(ServerError):
            await asking
    else:
        assert await asking is falls_back
    assert [each["method"] for each in link.sent] == methods


# --- the stateless protocol ----------------------------------------------------------------------------


async def test_a_request_of_the_stateless_protocol_describes_its_client_and_itself() -> None:
    session, link, arrive = await modern(log_level="warning", roots=[])
    for method, params in (
        ("tools/call", {"name": "a", "_meta": {"tenant": 1, protocol.META_VERSION: "forged"}}),
        ("resources/read", {"uri": "a:\u00e9", "name": "other"}),
        ("tools/list", {"name": "a"}),
    ):
        await talked(link, arrive, session.request(method, params, headers={"x-more": "1"}), {"result": {}})
    meta = link.sent[0]["params"]["_meta"]
    assert meta.pop(protocol.META_CLIENT)["name"] == "operad"
    assert meta == {
        "tenant": 1,
        protocol.META_LOG_LEVEL: "warning",
        protocol.META_VERSION: protocol.MODERN,
        protocol.META_CAPABILITIES: {"roots": {"listChanged": True}, "extensions": {protocol.TASKS: {}}},
    }
    named = [(each[protocol.METHOD_HEADER], each.get(protocol.NAME_HEADER)) for each in link.headers]
    assert named == [("tools/call", "a"), ("resources/read", "=?base64?YTrDqQ==?="), ("tools/list", None)]
    assert {(each["x-more"], each[protocol.VERSION_HEADER]) for each in link.headers} == {("1", protocol.MODERN)}


def tool(name: Any, header: Any) -> Json:
    properties = {"r": {"type": "string", "x-mcp-header": header}}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


async def test_arguments_are_headers_over_http_as_the_server_declares(caplog: Log) -> None:
    listed = {"tools": [tool("good", "Region"), tool("bad", "no token"), tool(5, "no token"), "odd"], "more": 1}
    for url, left in (("http://h.invalid/mcp", [0, 2, 3]), (None, [0, 1, 2, 3])):
        session, link, arrive = await modern(**({} if url is None else {"url": url}))
        found = await talked(link, arrive, session.request("tools/list", {}), {"result": listed})
        assert found == {"tools": [listed["tools"][index] for index in left], "more": 1}  # type: ignore[index]  # a list
        for name in ("good", "bad"):
            call = session.request("tools/call", {"name": name, "arguments": {"r": "eu"}})
            await talked(link, arrive, call, {"result": {}})
        sent = [each.get("Mcp-Param-Region") for each in link.headers]
        assert sent == [None, None if url is None else "eu", None]
    assert "the tool 'bad' is left out" in caplog.text


@pytest.mark.parametrize(
    "listed", [None, {"tools": {"x-mcp-header": 1}}, {"tools": [{"name": "plain"}]}, ["x-mcp-header"]]
)
async def test_a_listing_that_declares_no_headers_is_unchanged(listed: Any) -> None:
    session, link, arrive = await modern(url="http://h.invalid/mcp")
    assert await talked(link, arrive, session.request("tools/list", {}), {"result": listed}) is listed


# --- what a server asks --------------------------------------------------------------------------------

FORM = {"requestedSchema": {"properties": {"a": {"default": 1}, "b": {"default": 2}, "c": {}, "d": 5}}}


RAISED = {"busy": CallError("EXECUTION_ERROR", "busy"), "wrong": ValueError("no")}


def returns(value: Any) -> Any:
    async def callback(*_: Any) -> Any:
        if value in list(RAISED):
            raise RAISED[value]
        return value

    return callback


@table("questions")
async def test_a_question_of_a_server_has_the_answer_of_its_callback(
    method: str, option: str, value: Any, answer: Any
) -> None:
    session, link, arrive = opened(**{option: returns(value)})
    arrive({"id": "q", "method": method, "params": FORM})
    await turns()
    (reply,) = link.sent
    assert reply["id"] == "q"
    assert reply.get("result", reply.get("error", {}).get("code")) == answer
    await session.aclose()


@pytest.mark.parametrize("content", [None, "text"])
async def test_a_form_without_content_has_the_defaults_alone(content: Any) -> None:
    for form, filled in ((FORM, {"a": 1, "b": 2}), ({"requestedSchema": {"properties": []}}, {})):
        session, link, arrive = opened(elicitation=returns({"action": "accept", "content": content}))
        arrive({"id": 1, "method": "elicitation/create", "params": form})
        await turns()
        assert link.sent[0]["result"] == {"action": "accept", "content": filled}
        await session.aclose()


async def test_a_reply_that_cannot_be_sent_is_dropped_and_the_next_question_is_answered() -> None:
    session, link, arrive = opened(roots=[])
    link.fault = ConnectionLost("gone")
    arrive({"id": 1, "method": "roots/list"})
    await turns()
    link.fault = None
    arrive({"id": 1, "method": "roots/list"})
    await turns()
    assert link.sent == [{"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}]
    await session.aclose()


async def test_the_end_of_a_session_cancels_its_callbacks_and_lets_those_who_wait_for_room_go() -> None:
    ended: list[str] = []

    async def roots() -> list[str]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("roots")
        return []

    session, _, arrive = opened(roots=roots)
    for number in range(300):
        arrive({"id": number, "method": "roots/list"})
    waiting = [asyncio.create_task(session.room()) for _ in range(2)]
    await turns()
    assert not any(each.done() for each in waiting)
    await session.aclose()
    await asyncio.gather(*waiting)
    assert ended == ["roots"] * 300
    with pytest.raises(ConnectionLost):
        await session.request("a", {})
    await session.notify("a")  # dropped


async def test_a_flood_of_logs_and_reports_waits_for_no_more_than_256_of_each() -> None:
    started, hold = 0, asyncio.Event()

    async def slow(*_: Any) -> None:
        nonlocal started
        started += 1
        await hold.wait()

    session, link, arrive = opened(on_log=slow)
    for number in range(300):
        arrive({"method": "notifications/message", "params": {"data": number}})
    await turns()
    assert started == 256
    hold.set()
    await turns()
    arrive({"method": "notifications/message", "params": {"data": "later"}})
    await turns()
    assert started == 257
    started = 0
    hold.clear()
    asking = await begun(session.request("tools/call", {}, progress=slow))
    for number in range(300):
        progress(arrive, link.sent[0]["id"], number)
    hold.set()
    arrive({"id": link.sent[0]["id"], "result": 1})
    assert await asking == 1
    assert started == 256
    await session.aclose()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_callback_for_logs_that_raises_is_logged_and_ends_with_the_session(
    is_async: bool, caplog: Log
) -> None:
    ended = asyncio.Event()

    def log(params: Json) -> Any:
        if params["data"] == "raise" and not is_async:
            raise ValueError("a hawk")
        return later(params["data"])

    async def later(data: str) -> None:
        if data == "raise":
            raise ValueError("a hawk")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    session, _, arrive = opened(on_log=log)
    for data in ("raise", "wait"):
        arrive({"method": "notifications/message", "params": {"data": data}})
    await turns()
    assert "on_log raised" in caplog.text
    assert "a hawk" in caplog.text
    await session.callbacks.end()
    assert ended.is_set()


# --- what a server reports -----------------------------------------------------------------------------


async def test_an_update_reaches_each_who_watches_its_resource_and_the_end_reaches_all() -> None:
    changed: list[str] = []
    watchers = Watchers(changed.append)
    _, _, arrive = opened(watchers)
    (one, first), (two, second), (other, _) = (watchers.add(uri) for uri in ("a:b", "a:b", "a:c"))
    assert (first, second) == (True, False)
    for _ in range(1_030):
        arrive({"method": "notifications/resources/updated", "params": {"uri": "a:b", "n": 1}})
    assert (one.qsize(), two.qsize(), other.qsize()) == (1024, 1024, 0)
    assert one.get_nowait() == {"uri": "a:b", "n": 1}
    for what in ("tools", "resources", "prompts"):
        arrive({"method": f"notifications/{what}/list_changed"})
    assert changed == ["tools", "resources", "prompts"]
    assert watchers.remove("a:b", one) is False
    watchers.lost()
    assert (one.qsize(), two.qsize(), other.get_nowait()) == (1023, 1025, None)
    assert watchers.remove("a:b", two) is True
    assert watchers.add("a:b")[1] is True


def told(link: Recorded, arrive: Callable[[Json], None], method: str, **params: Any) -> None:
    """Send a notification on the stream that the last request opened."""
    meta = {protocol.META_SUBSCRIPTION: link.sent[-1]["id"]}
    arrive({"method": f"notifications/{method}", "params": {**params, "_meta": meta}})


ACKNOWLEDGED = "subscriptions/acknowledged"
LOST = CallError("UNAVAILABLE", "lost")


async def test_updates_of_a_resource_begin_when_the_server_offers_them_and_end_with_the_connection() -> None:
    session, link, arrive = await modern()
    watching = updates(session, "s", "a:b", LOST)
    first = await begun(anext(watching))
    assert link.sent[0]["params"]["notifications"] == {"resourceSubscriptions": ["a:b"]}
    told(link, arrive, "resources/updated", uri="too:early")
    told(link, arrive, ACKNOWLEDGED, notifications={"resourceSubscriptions": ["a:b"]})
    told(link, arrive, ACKNOWLEDGED, notifications={})
    told(link, arrive, "tools/list_changed")
    told(link, arrive, "resources/updated", uri="a:b/c")
    told(link, arrive, "resources/updated")
    assert await first == {"uri": "a:b/c"}
    assert await anext(watching) == {"uri": "a:b"}
    session.end()
    assert await fails(anext(watching)) is LOST


@pytest.mark.parametrize("honored", [{}, {"resourceSubscriptions": []}, None, "all"])
async def test_updates_that_a_server_does_not_offer_are_an_error(honored: Any) -> None:
    session, link, arrive = await modern()
    first = await begun(anext(updates(session, "s", "a:b", LOST)))
    told(link, arrive, ACKNOWLEDGED, notifications=honored)
    error = await fails(first)
    assert (error.code, error.message) == ("EXECUTION_ERROR", "s does not offer subscriptions to a:b")
    assert link.sent[-1]["method"] == "notifications/cancelled"


async def test_a_refused_subscription_is_the_error_of_the_server_and_one_that_ends_is_its_end() -> None:
    for acknowledged, reply in ((False, refused(-32602, None)), (False, {"result": {}}), (True, {"result": {}})):
        session, link, arrive = await modern()
        first = await begun(anext(updates(session, "s", "a:b", LOST)))
        if acknowledged:
            told(link, arrive, ACKNOWLEDGED, notifications={"resourceSubscriptions": ["a:b"]})
        arrive({"id": link.sent[0]["id"], **reply})
        raised = StopAsyncIteration if acknowledged else ServerError if "error" in reply else CallError
        with pytest.raises(raised):
            await first


CHANGES = {"tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {"subscribe": True}}


async def test_changed_listings_are_listened_for_as_the_server_offers_them_and_again_with_pauses(
    monkeypatch: Patch,
) -> None:
    changed: list[str] = []
    session, link, arrive = opened(Watchers(changed.append))
    await talked(link, arrive, session.discover(), discovered(capabilities=CHANGES))
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def paused(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("operad_mcp.wire.watching.asyncio.sleep", paused)
    listening = await begun(listen(session, ServerLogger("s")))
    assert link.sent[-1]["params"]["notifications"] == {"toolsListChanged": True}
    told(link, arrive, "tools/list_changed")
    for _ in range(10):
        arrive({"id": link.sent[-1]["id"], **refused(-32603, None)})
        await turns()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    told(link, arrive, ACKNOWLEDGED)
    arrive({"id": link.sent[-1]["id"], "result": {}})
    await turns()
    assert pauses[10:] == [0.1]
    session.end()
    await listening
    assert changed == ["tools"]


async def test_a_server_that_reports_no_changes_is_not_listened_to() -> None:
    for session, link, _ in (opened(), await modern()):
        await listen(session, ServerLogger("s"))
        assert link.sent == []
    session, link, arrive = opened()
    found = {"protocolVersion": "2025-11-25", "capabilities": CHANGES}
    await talked(link, arrive, session.initialize(), {"result": found})
    await listen(session, ServerLogger("s"))
    assert len(link.sent) == 2


async def test_a_retired_session_ends_after_its_last_request_and_an_unused_one_at_once() -> None:
    session, _, _ = opened()
    with session.used():
        with session.used():
            session.retire()
            assert not session.stop.is_set()
        assert not session.stop.is_set()
    assert session.stop.is_set()
    session, _, _ = opened()
    with session.used():
        pass
    assert not session.stop.is_set()
    session.retire()
    assert session.stop.is_set()
