"""operad-tcp-calls: a call map and a call server that share nothing with operad's own but the interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from operad_tcp_calls import plugin

import operad.sync
from operad import (
    AccessControl,
    CallError,
    ConfigError,
    Identity,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    OperationType,
    Plugins,
    operation,
)
from operad.plugin import CallMap, TransportError
from operad.testing import run


@operation(namespace="shop", type="query")
async def price(item: str) -> float:
    return {"tea": 9.5}[item]


@operation(namespace="shop")
async def order(item: str, context: OperationContext) -> dict[str, Any]:
    return {"item": item, "key": context.idempotency_key, "by": context.identity and context.identity.id}


@operation(namespace="shop")
async def orders(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def picture(input: dict[str, Any], context: OperationContext) -> bytes:
    return b"\x00\xff"


@operation(namespace="shop", type="query")
async def refuse() -> None:
    raise CallError("SOLD_OUT", "no tea left", {"since": 3})


@operation(namespace="shop", access_control=AccessControl(required_scopes=["staff"]))
async def close() -> str:
    return "closed"


class Sleeper:
    """Operations that end only when they are cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = asyncio.Event(), asyncio.Event()
        self.operations = [
            operation(namespace="shop", name="sleep", type="query")(self.sleep),
            operation(namespace="shop", name="sleeps")(self.sleeps),
        ]

    async def sleep(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def sleeps(self) -> AsyncIterator[int]:
        yield 1
        await self.sleep()


def tcp_plugins() -> Plugins:
    plugins = Plugins()
    plugins.register(plugin, "tcp-calls")
    return plugins


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def served(*more: Any, **options: Any) -> AsyncIterator[tuple[Plugins, str]]:
    """Yield the plugins and the URL of a call server."""
    plugins, url = tcp_plugins(), f"tcp://127.0.0.1:{free_port()}"
    async with OperationRegistry(plugins) as registry:
        for each in (price, order, orders, refuse, close, *more):
            registry.register(each)
        async with plugins.call_server(registry, url, **options):
            yield plugins, url


@asynccontextmanager
async def called(*more: Any, **options: Any) -> AsyncIterator[CallMap]:
    async with served(*more, **options) as (plugins, url), plugins.call_map(url, timeout=30) as calls:
        yield calls


async def code_of(awaitable: Any) -> str:
    with pytest.raises(CallError) as failed:
        await awaitable
    return failed.value.code


def test_a_query_returns_its_envelope() -> None:
    async def main() -> None:
        async with called() as calls:
            envelope = await calls.call("shop.price", {"item": "tea"})
            assert envelope.data == 9.5
            assert envelope.meta.source == "local"
            assert envelope.meta.operation_id == "shop.price"

    run(main())


def test_a_mutation_gets_the_idempotency_key_and_no_identity_that_is_only_claimed() -> None:
    async def main() -> None:
        async with called() as calls:
            envelope = await calls.call(
                "shop.order", {"item": "tea"}, idempotency_key="k", identity=Identity("ann")
            )
            assert envelope.data == {"item": "tea", "key": "k", "by": None}

    run(main())


def test_a_server_that_trusts_its_callers_takes_their_identity() -> None:
    async def main() -> None:
        async with called(identity="delegate") as calls:
            assert await code_of(calls.call("shop.close")) == "ACCESS_DENIED"
            envelope = await calls.call("shop.close", identity=Identity("ann", {"staff"}))
            assert envelope.data == "closed"

    run(main())


def test_a_subscription_yields_its_items_and_a_query_its_one_envelope() -> None:
    async def main() -> None:
        async with called() as calls:
            assert [item.data async for item in calls.subscribe("shop.orders", {"count": 100})] == list(range(100))
            assert [item.data async for item in calls.subscribe("shop.price", {"item": "tea"})] == [9.5]
            assert (await calls.call("shop.orders", {"count": 2})).data == 0

    run(main())


def test_a_subscription_that_is_left_ends_its_handler() -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with called(*sleeper.operations) as calls:
            async with calls.subscribe("shop.sleeps") as items:
                assert (await anext(items)).data == 1
                await sleeper.started.wait()
            await sleeper.cancelled.wait()

    run(main())


def test_binary_data_arrive_as_they_were() -> None:
    async def main() -> None:
        spec = OperationSpec(namespace="shop", name="picture", type=OperationType.QUERY)
        async with called(Operation(spec, picture)) as calls:
            assert (await calls.call("shop.picture")).data == b"\x00\xff"

    run(main())


def test_a_message_that_is_too_large_is_refused_by_its_sender() -> None:
    async def main() -> None:
        async with called() as calls:
            with pytest.raises(CallError) as failed:
                await calls.call("shop.price", {"item": "x" * 5 * 1024 * 1024})
            assert failed.value.code == "PAYLOAD_TOO_LARGE"

    run(main())


def test_a_timeout_of_any_size_is_accepted() -> None:
    async def main() -> None:
        async with called() as calls:
            assert await code_of(calls.call("shop.price", {"item": "tea"}, timeout=-1e300)) == "TIMEOUT"
            assert (await calls.call("shop.price", {"item": "tea"}, timeout=1e300)).data == 9.5

    run(main())


def test_an_error_arrives_with_code_message_and_details() -> None:
    async def main() -> None:
        async with called() as calls:
            with pytest.raises(CallError) as failed:
                await calls.call("shop.refuse")
            assert failed.value.to_wire() == {
                "code": "SOLD_OUT",
                "message": "no tea left",
                "details": {"since": 3},
            }
            assert await code_of(calls.call("shop.price", {"item": 1})) == "VALIDATION_ERROR"
            assert await code_of(calls.call("shop.price", {"item": {1}})) == "SERIALIZATION_ERROR"

    run(main())


def test_the_message_of_an_unexpected_exception_stays_on_its_side() -> None:
    async def main() -> None:
        async with called() as calls:
            with pytest.raises(CallError) as failed:
                await calls.call("shop.price", {"item": "secret"})
            assert failed.value.code == "EXECUTION_ERROR"
            assert "secret" not in str(failed.value.to_wire())

    run(main())


def test_an_unknown_operation_is_not_found() -> None:
    async def main() -> None:
        async with called() as calls:
            assert await code_of(calls.call("shop.nothing")) == "OPERATION_NOT_FOUND"
            assert await code_of(anext(calls.subscribe("shop.nothing"))) == "OPERATION_NOT_FOUND"

    run(main())


@pytest.mark.parametrize("limit", ["timeout", "deadline"])
def test_a_call_ends_at_its_deadline_on_both_sides(limit: str) -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with called(*sleeper.operations) as calls:
            if limit == "timeout":
                call = calls.call("shop.sleep", timeout=0.5)
            else:
                call = calls.call("shop.sleep", deadline=time.time() * 1000 + 500)
            assert await code_of(call) == "TIMEOUT"
            assert not sleeper.started.is_set() or await sleeper.cancelled.wait()

    run(main())


def test_the_timeout_of_a_subscription_limits_each_wait() -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with called(*sleeper.operations) as calls:
            items = calls.subscribe("shop.sleeps", timeout=2.0)
            assert (await anext(items)).data == 1
            assert await code_of(anext(items)) == "TIMEOUT"
            await sleeper.cancelled.wait()

    run(main())


def test_a_cancelled_call_ends_its_handler() -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with called(*sleeper.operations) as calls:
            task = asyncio.ensure_future(calls.call("shop.sleep"))
            await sleeper.started.wait()
            task.cancel()
            await sleeper.cancelled.wait()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_closing_the_map_aborts_what_runs() -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with called(*sleeper.operations) as calls:
            task = asyncio.ensure_future(calls.call("shop.sleep"))
            await sleeper.started.wait()
            await calls.aclose()
            await calls.aclose()
            assert await code_of(task) == "ABORTED"
            assert await code_of(calls.call("shop.price", {"item": "tea"})) == "UNAVAILABLE"

    run(main())


def test_a_lost_connection_ends_the_call_and_the_stream() -> None:
    async def main() -> None:
        async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = await reader.readline()
            if b'"stream":true' in line:
                writer.write(b'{"item":{"data":1,"meta":{"source":"unheard-of"}}}\n')
                await writer.drain()
            writer.close()

        async with await asyncio.start_server(lose, "127.0.0.1", 0) as server:
            url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with tcp_plugins().call_map(url) as calls:
                with pytest.raises(CallError) as failed:
                    await calls.call("shop.order", {"item": "tea"})
                assert failed.value.code == "UNAVAILABLE"
                assert failed.value.details == {"operationId": "shop.order", "sent": True}
                assert failed.value.ran is None
                items = calls.subscribe("shop.orders")
                assert (await anext(items)).meta.source == "unheard-of"
                assert await code_of(anext(items)) == "UNAVAILABLE"

    run(main())


def test_a_call_that_was_not_sent_is_known_not_to_have_run() -> None:
    async def main() -> None:
        async with served() as (plugins, url):
            calls = plugins.call_map(url)
            await calls.open()
        with pytest.raises(CallError) as failed:
            await calls.call("shop.order", {"item": "tea"})
        assert failed.value.code == "UNAVAILABLE"
        assert failed.value.ran is False
        await calls.aclose()

    run(main())


def test_a_map_without_a_server_does_not_open() -> None:
    async def main() -> None:
        with pytest.raises(TransportError, match="start the server"):
            await tcp_plugins().call_map(f"tcp://127.0.0.1:{free_port()}").open()

    run(main())


def test_an_address_that_is_taken_is_not_served() -> None:
    async def main() -> None:
        async with served() as (plugins, url), OperationRegistry(plugins) as registry:
            with pytest.raises(TransportError, match="cannot listen on"):
                await plugins.call_server(registry, url).__aenter__()

    run(main())


def test_a_closing_server_lets_running_calls_finish() -> None:
    async def main() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        @operation(namespace="shop", type="query")
        async def slow() -> str:
            started.set()
            await go_on.wait()
            return "finished"

        async with contextlib.AsyncExitStack() as stack:
            async with served(slow) as (plugins, url):
                calls = await stack.enter_async_context(plugins.call_map(url))
                task = asyncio.ensure_future(calls.call("shop.slow"))
                await started.wait()
                asyncio.get_running_loop().call_later(0.05, go_on.set)
            assert (await task).data == "finished"

    run(main())


def test_a_closing_server_closes_connections_without_a_request() -> None:
    async def main() -> None:
        async with served() as (plugins, url), plugins.call_map(url) as calls:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            await calls.call("shop.price", {"item": "tea"})  # the server has accepted both
        assert await reader.read() == b""
        writer.close()

    run(main())


def test_a_closing_server_ends_the_calls_that_do_not_finish() -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with contextlib.AsyncExitStack() as stack:
            async with served(*sleeper.operations, drain_timeout=0.0) as (plugins, url):
                calls = await stack.enter_async_context(plugins.call_map(url))
                task = asyncio.ensure_future(calls.call("shop.sleep"))
                await sleeper.started.wait()
            await sleeper.cancelled.wait()
            assert await code_of(task) == "UNAVAILABLE"

    run(main())


def test_too_many_calls_are_overloaded() -> None:
    async def main() -> None:
        sleeper = Sleeper()
        async with called(*sleeper.operations, max_concurrent=1) as calls:
            task = asyncio.ensure_future(calls.call("shop.sleep"))
            await sleeper.started.wait()
            assert await code_of(calls.call("shop.price", {"item": "tea"})) == "OVERLOADED"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main())


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"no JSON",
        b'{"operation": 1}',
        b'{"operation": "shop.price", "timeout_ms": "soon"}',
        b'{"operation": "shop.order", "input": {"item": "tea"}, "identity": {"id": 1}}',
        b"{" * 100_000,
        b" " * (5 * 1024 * 1024),
    ],
)
def test_a_hostile_line_is_refused_and_others_are_served(line: bytes) -> None:
    async def main() -> None:
        async with served(identity="delegate") as (plugins, url), plugins.call_map(url) as calls:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            with contextlib.suppress(ConnectionError):
                writer.write(line + b"\n")
                answer = await reader.read()
                assert answer == b"" or b"SERIALIZATION_ERROR" in answer
            writer.close()
            assert (await calls.call("shop.price", {"item": "tea"})).data == 9.5

    run(main())


def test_a_request_cannot_read_the_environment_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")

    async def main() -> None:
        async with called() as calls:
            envelope = await calls.call("shop.order", {"item": "${TOKEN}"}, idempotency_key="${TOKEN}")
            assert envelope.data == {"item": "${TOKEN}", "key": "${TOKEN}", "by": None}

    run(main())


@pytest.mark.parametrize("url", ["tcp://127.0.0.1", "tcp://:1", "tcp://127.0.0.1:many"])
def test_a_url_without_an_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="tcp://HOST:PORT"):
        tcp_plugins().call_map(url)


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="connect_timeout"):
        tcp_plugins().transport("tcp://127.0.0.1:1", connect_timeoot=1)


@contextlib.contextmanager
def serving_thread() -> Iterator[tuple[Plugins, str]]:
    """Serve in an event loop of another thread, as another process would."""
    ready, stop, found = threading.Event(), threading.Event(), []

    async def main() -> None:
        async with served() as got:
            found.append(got)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: run(main()))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        stop.set()
        thread.join()


def test_the_map_without_await_calls_and_subscribes() -> None:
    with serving_thread() as (_, url):
        plugins = tcp_plugins()
        with operad.sync.PendingRequestMap(plugins.transport(url), plugins=plugins, timeout=30.0) as calls:
            assert calls.call("shop.price", {"item": "tea"}).data == 9.5
            assert [item.data for item in calls.subscribe("shop.orders", {"count": 3})] == [0, 1, 2]
            with pytest.raises(CallError, match="no tea left"):
                calls.call("shop.refuse")
