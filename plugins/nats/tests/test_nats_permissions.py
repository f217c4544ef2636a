"""A real server with permissions: the least that callers and workers need, and what a refusal is told as."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, from_remote
from operad.plugin import TransportError
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer
from plugins.calls.tests.links import until

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
def url(new_server: type[NATSServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config: Path = tmp_path_factory.mktemp("nats") / "server.conf"
    config.write_text(CONFIG)
    with new_server(["-c", str(config)]) as server:
        yield server.url


def as_user(url: str, user: str) -> NATSTransport:
    return NATSTransport(servers=url, user=user, password="p", inbox=user)


def registry(ran: list[str]) -> OperationRegistry:
    made = OperationRegistry()

    def run(spec: OperationSpec, result: str) -> None:
        async def handler(input: Any, context: Any) -> str:
            ran.append(spec.id)
            return result

        made.register(spec, handler)

    async def count(input: Any, context: Any) -> Any:
        for number in range(100):
            yield number

    run(OperationSpec(namespace="public", name="ping", type="query"), "pong")
    run(OperationSpec(namespace="admin", name="drop", type="mutation"), "dropped")
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
            with pytest.raises(CallError, match="ACCESS_DENIED: .*does not permit"):
                await guest.call("admin.drop", timeout=60)
            answers: list[Any] = []
            link = await as_user(url, "guest").open(lambda event, _: answers.append(event), lambda *_: None)
            payload = {"requestId": "1", "operationId": "admin.drop", "input": {}, "replyTo": link.inbox}
            await link.send("op:public.ping", {"type": "call.requested", "id": "", "payload": payload})
            await until(lambda: answers)
            await link.close()
    assert answers[0]["payload"]["code"] == "ACCESS_DENIED"
    assert ran == ["public.ping"]


async def test_an_address_that_the_server_lets_nobody_serve_is_an_error_at_once(url: str) -> None:
    link = await as_user(url, "guest").open(lambda *_: None, lambda *_: None)
    with pytest.raises(TransportError, match="does not permit this user to subscribe to operad.op.public.ping"):
        await link.register("op:public.ping", "operad")
    await link.close()
