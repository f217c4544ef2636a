"""A session over a transport that records what is sent: requests, answers, and what a server asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from mcp_types import version as sdk_versions

from operad_mcp import MCPClientConfig
from operad_mcp.errors import ConnectionLost, ServerError
from operad_mcp.wire import protocol
from operad_mcp.wire.callbacks import Callbacks
from operad_mcp.wire.calls import Calls
from operad_mcp.wire.link import Link
from operad_mcp.wire.messages import Answer, Json, message_of
from operad_mcp.wire.protocol import ServerLogger
from operad_mcp.wire.session import Session


class Recorded(Link):
    """A transport without a server: `sent` has what went out, and its JSON form is checked as on a wire."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.sent: list[Json] = []

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        from operad_mcp.wire.messages import encode

        encode(message)
        self.sent.append(message)


def opened(**options: Any) -> tuple[Session, Recorded, Callable[[Json], None]]:
    """A session, its transport, and what takes a message of the server."""
    config, logger = MCPClientConfig(command="none", **options), ServerLogger("s")
    session = Session(config, Callbacks(config, logger, Calls("s")), lambda _method, _params: None, logger)
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


async def test_the_first_answer_to_a_request_counts_and_an_id_may_come_back_as_text() -> None:
    session, link, arrive = opened()
    asking = asyncio.create_task(session.request("tools/list", {}))
    await turns()
    for result in ({"tools": [1]}, {"tools": [2]}):
        arrive({"id": str(link.sent[0]["id"]), "result": result})
    assert await asking == {"tools": [1]}


async def test_an_error_of_the_server_and_the_end_of_the_connection_are_two_types() -> None:
    session, link, arrive = opened()
    asking = asyncio.create_task(session.request("a", {}))
    await turns()
    arrive({"id": link.sent[0]["id"], "error": {"code": -32000, "message": "Connection closed"}})
    with pytest.raises(ServerError, match="Connection closed"):
        await asking
    asking = asyncio.create_task(session.request("a", {}))
    await turns()
    link.end()
    with pytest.raises(ConnectionLost):
        await asking
    with pytest.raises(ConnectionLost) as unsent:
        await session.request("a", {})
    assert unsent.value.sent is False


async def test_progress_is_reported_in_order_and_before_the_result_though_a_report_raises() -> None:
    session, link, arrive = opened()
    seen: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        seen.append(done)
        if done == 2:
            raise ValueError("no")

    asking = asyncio.create_task(session.request("tools/call", {"name": "a"}, progress=progress))
    await turns()
    token = link.sent[0]["params"]["_meta"]["progressToken"]
    for done in (1, 2, 3, "many", True):
        arrive({"method": "notifications/progress", "params": {"progressToken": token, "progress": done}})
    arrive({"id": link.sent[0]["id"], "result": {}})
    assert await asking == {}
    assert seen == [1, 2, 3]


async def test_notifications_without_use_are_left_out_and_the_answer_behind_them_arrives() -> None:
    session, link, arrive = opened()
    seen: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    asking = asyncio.create_task(session.request("tools/call", {"name": "a"}, progress=progress))
    await turns()
    token = link.sent[0]["params"]["_meta"]["progressToken"]
    deep: Any = 0
    for _ in range(2_000):
        deep = [deep]
    arrive({"method": "notifications/cancelled", "params": {"requestId": []}})
    arrive({"method": "notifications/progress", "params": {"progressToken": token, "progress": 10**400}})
    arrive({"method": "notifications/progress", "params": {"progressToken": [], "progress": 1}})
    arrive({"method": "notifications/message", "params": {"level": deep, "data": "x"}})
    arrive({"id": link.sent[0]["id"], "result": {}})
    assert await asking == {}
    assert seen == []


def test_an_error_that_is_nested_too_deeply_for_its_text_is_an_error_of_the_request() -> None:
    deep: Any = 0
    for _ in range(200_000):
        deep = [deep]
    for wrong in ({"id": 1, "error": deep}, {"id": 1, "error": {"message": deep}}, {"id": 1, "neither": deep}):
        found = message_of(wrong)
        assert isinstance(found, Answer)
        assert found.id == 1
        assert "nested too deeply" in str(found.error)


async def test_a_request_that_is_cancelled_is_cancelled_at_the_server_and_the_handshake_is_not() -> None:
    session, link, _ = opened()
    for method in ("tools/call", "initialize"):
        asking = asyncio.create_task(session.request(method, {}))
        await turns()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert [message["method"] for message in link.sent] == ["tools/call", "notifications/cancelled", "initialize"]
    assert link.sent[1]["params"] == {"requestId": link.sent[0]["id"]}


async def test_what_a_server_asks_is_answered_once_for_each_id_and_bounded() -> None:
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
    assert len(ids) < 2_000
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
    [
        ("elicitation/create", -32603),
        ("sampling/createMessage", -32603),
        ("roots/list", -32600),
        ("no/such", -32601),
    ],
)
async def test_an_answer_that_cannot_be_sent_is_an_error_for_the_server(
    method: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def unsendable(_params: Json) -> Any:
        return {"action": "accept", "content": {"a": object()}}

    async def shapeless(_params: Json) -> Any:
        return {"role": "nobody"}

    session, link, arrive = opened(elicitation=unsendable, sampling=shapeless)
    with caplog.at_level(logging.CRITICAL):
        arrive({"id": 1, "method": method, "params": {"message": "m"}})
        await turns()
    assert [message["error"]["code"] for message in link.sent] == [code]
    await session.aclose()


def test_the_names_of_the_protocol_are_those_of_the_sdk() -> None:
    import mcp_types
    from mcp.shared import inbound, subscriptions

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
    from mcp.shared.inbound import encode_header_value

    assert protocol.header_value(text) == encode_header_value(text)
