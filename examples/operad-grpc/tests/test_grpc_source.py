"""What a gRPC server offers, called through `execute`, `subscribe` and the call protocol."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from pathlib import Path

import pytest
from loft import descriptor_set, loaded, serve_loft
from operad_grpc import from_grpc

from operad import CallError, OperationContext, OperationRegistry, SourceError, load_plugins


async def test_methods_become_operations_of_the_right_type() -> None:
    async with loaded() as (registry, _):
        types = {spec.name: str(spec.type) for spec in registry.specs()}
        assert types == {
            "Loft.Echo": "query", "Loft.GetBird": "query", "Loft.OldCall": "mutation",
            "Loft.SendBird": "mutation", "Loft.WatchBirds": "subscription",
        }  # fmt: skip
        old = registry.get_spec("g.Loft.OldCall")
        assert old is not None
        assert old.deprecated
        assert old.metadata == {"grpcMethod": "/loft.v1.Loft/OldCall", "idempotencyLevel": "IDEMPOTENT"}


async def test_a_method_that_takes_a_stream_is_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with loaded() as (registry, _):
            assert "g.Loft.CountSteps" not in registry
    assert "loft.v1.Loft.CountSteps is left out" in caplog.text


async def test_a_unary_call_answers_data_and_metadata() -> None:
    async with loaded() as (registry, _):
        envelope = await registry.execute("g.Loft.GetBird", {"ring": "a1"})
        assert envelope.data == {"ring": "a1", "feathers": str(2**60), "colour": "GREY", "chicks": []}
        meta = envelope.meta
        assert (meta.source, meta.method, meta.status) == ("grpc", "/loft.v1.Loft/GetBird", "OK")
        assert meta.initial_metadata["loft"] == ["north"]
        assert meta.trailing_metadata["seen"] == ["1", "2"]
        assert base64.b64decode(meta.trailing_metadata["trace-bin"][0]) == b"\x00\x01"


async def test_a_stream_is_a_subscription_that_ends() -> None:
    async with loaded() as (registry, _):
        rings = [item.data["ring"] async for item in registry.subscribe("g.Loft.WatchBirds", {"count": 5})]
        assert rings == ["0", "1", "2", "3", "4"]


async def test_leaving_a_stream_cancels_it_on_the_server() -> None:
    async with loaded() as (registry, loft):
        async for _ in registry.subscribe("g.Loft.WatchBirds", {"forEver": True}):
            break
        await loft.cancelled.wait()


async def test_a_stream_that_fails_raises_after_its_items() -> None:
    async with loaded() as (registry, _):
        stream = registry.subscribe("g.Loft.WatchBirds", {"count": 2, "failAfter": True})
        assert [(await anext(stream)).data["ring"] for _ in range(2)] == ["0", "1"]
        with pytest.raises(CallError, match="a bird fell out") as caught:
            await anext(stream)
        assert (caught.value.details or {})["grpcStatus"] == "DATA_LOSS"


async def test_an_error_carries_the_status_and_the_trailing_metadata() -> None:
    async with loaded() as (registry, _):
        with pytest.raises(CallError) as caught:
            await registry.execute("g.Loft.GetBird", {"ring": "lost"})
        assert caught.value.code == "EXECUTION_ERROR"
        assert "no such bird" in caught.value.message
        assert caught.value.details == {
            "grpcStatus": "NOT_FOUND",
            "grpcCode": 5,
            "method": "/loft.v1.Loft/GetBird",
            "trailingMetadata": {"reason": ["hawk"], "trace-bin": ["AAE="]},
        }


@pytest.mark.parametrize(
    ("status", "code"),
    [("UNAVAILABLE", "UNAVAILABLE"), ("CANCELLED", "ABORTED"), ("PERMISSION_DENIED", "EXECUTION_ERROR")],
)
async def test_a_status_becomes_a_code(status: str, code: str) -> None:
    async with loaded() as (registry, _):
        with pytest.raises(CallError) as caught:
            await registry.execute("g.Loft.SendBird", {"failWith": status})
        assert caught.value.code == code


async def test_the_callers_deadline_is_the_rpcs() -> None:
    async with loaded(timeout=20.0) as (registry, loft):
        await registry.execute("g.Loft.GetBird", {"ring": "a"})
        await registry.execute("g.Loft.GetBird", {"ring": "a"}, timeout=7.0)
        first, second = (left or 0 for left in loft.time_left)
        assert 0 < second < 10 < first < 25  # the source's own
        with pytest.raises(CallError) as caught:
            await registry.execute("g.Loft.SendBird", {"sleepMs": 60_000}, timeout=0.1)
        assert caught.value.code == "TIMEOUT"
        await loft.cancelled.wait()


async def test_cancelling_a_call_cancels_the_rpc() -> None:
    async with loaded() as (registry, loft):
        call = asyncio.create_task(registry.execute("g.Loft.SendBird", {"sleepMs": 60_000}))
        await loft.began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await loft.cancelled.wait()


async def test_metadata_and_token_are_sent() -> None:
    async with loaded(token="t", metadata={"X-Loft": "north"}) as (registry, loft):
        await registry.execute("g.Loft.GetBird", {"ring": "a"})
        assert loft.metadata[0]["authorization"] == "Bearer t"
        assert loft.metadata[0]["x-loft"] == "north"


async def test_a_token_does_not_travel_in_clear() -> None:
    with pytest.raises(SourceError, match="without TLS"):
        await from_grpc("example.com:443", token="t")


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1"):
        await from_grpc("127.0.0.1:1", connect_timeout=5)


async def test_a_server_without_reflection_says_what_to_do_and_works_with_a_descriptor_set(tmp_path: Path) -> None:
    async with serve_loft(with_reflection=False) as (target, _):
        with pytest.raises(SourceError, match="set descriptor_set"):
            await from_grpc(target)
        file = tmp_path / "loft.binpb"
        file.write_bytes(descriptor_set())
        async with await from_grpc(target, descriptor_set=file) as session:
            registry = OperationRegistry(load_plugins(only=["grpc"]))
            for operation in session.operations:
                registry.register(operation)
            assert (await registry.execute("grpc.Loft.GetBird", {"ring": "a"})).data["ring"] == "a"


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"not a descriptor"])
async def test_a_file_that_is_no_descriptor_set_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SourceError, match="cannot be read as a descriptor set"):
        await from_grpc("127.0.0.1:1", descriptor_set=tmp_path / "x")


async def test_a_descriptor_set_without_its_imports_says_how_to_make_it(tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    whole = FileDescriptorSet.FromString(descriptor_set())
    part = FileDescriptorSet(file=[file for file in whole.file if file.name == "loft.proto"])
    (tmp_path / "x").write_bytes(part.SerializeToString())
    with pytest.raises(SourceError, match="--include_imports"):
        await from_grpc("127.0.0.1:1", descriptor_set=tmp_path / "x")


async def test_calls_go_through_the_call_protocol() -> None:
    from operad import CallHandler, InProcessTransport, PendingRequestMap

    transport = InProcessTransport(strict=True)
    async with (
        loaded() as (registry, loft),
        CallHandler(registry, transport),
        PendingRequestMap(transport, plugins=registry.plugins) as calls,
    ):
        envelope = await calls.call("g.Loft.GetBird", {"ring": "far"})
        assert envelope.data["ring"] == "far"
        assert envelope.meta.source == "grpc"
        assert envelope.meta.trailing_metadata["seen"] == ["1", "2"]
        stream = calls.subscribe("g.Loft.WatchBirds", {"count": 3})
        assert [item.data["ring"] async for item in stream] == ["0", "1", "2"]
        with pytest.raises(CallError) as caught:
            await calls.call("g.Loft.GetBird", {"ring": "lost"})
        assert (caught.value.details or {})["grpcStatus"] == "NOT_FOUND"
        with pytest.raises(CallError) as caught:
            await calls.call("g.Loft.SendBird", {"sleepMs": 60_000}, timeout=0.2)
        assert caught.value.code == "TIMEOUT"
        await loft.cancelled.wait()
        loft.cancelled.clear()
        async for _ in calls.subscribe("g.Loft.WatchBirds", {"forEver": True}):
            break
        await loft.cancelled.wait()


async def test_the_deadline_of_a_context_counts() -> None:
    async with loaded() as (registry, loft):
        context = OperationContext(deadline=(time.time() + 5) * 1000)
        await registry.execute("g.Loft.GetBird", {"ring": "a"}, context)
        assert 0 < (loft.time_left[0] or 0) < 10  # not the 30 s of the source
