"""A real gRPC server with reflection: a loft of carrier pigeons."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection
from grpc_tools import protoc

from operad import OperationRegistry, load_plugins

PROTO = Path(__file__).with_name("loft.proto")
SERVICE = "loft.v1.Loft"


@cache
def descriptor_set() -> bytes:
    """The compiled descriptor set of loft.proto and what it imports."""
    well_known = str(Path(protoc.__file__).with_name("_proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "loft.binpb"
        command = ["", f"-I{PROTO.parent}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={out}"]
        assert protoc.main([*command, PROTO.name]) == 0
        return out.read_bytes()


@cache
def pool() -> DescriptorPool:
    """The descriptors, in a pool of their own."""
    made = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptor_set()).file:
        made.AddSerializedFile(file.SerializeToString())
    return made


def message(name: str) -> Any:
    """A message class."""
    return GetMessageClass(pool().FindMessageTypeByName(f"loft.v1.{name}"))


class Loft:
    """The service's methods."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []
        self.time_left: list[float | None] = []
        self.began, self.cancelled = asyncio.Event(), asyncio.Event()

    def _note(self, context: Any) -> None:
        self.began.set()
        self.metadata.append(dict(context.invocation_metadata()))
        self.time_left.append(context.time_remaining())

    async def get_bird(self, request: Any, context: Any) -> Any:
        self._note(context)
        if request.ring == "lost":
            context.set_trailing_metadata((("reason", "hawk"), ("trace-bin", b"\x00\x01")))
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such bird")
        await context.send_initial_metadata((("loft", "north"),))
        context.set_trailing_metadata((("seen", "1"), ("seen", "2"), ("trace-bin", b"\x00\x01")))
        return message("Bird")(ring=request.ring, feathers=2**60, colour=1)

    async def send_bird(self, request: Any, context: Any) -> Any:
        self._note(context)
        if request.fail_with:
            await context.abort(grpc.StatusCode[request.fail_with], "as asked")
        try:
            await asyncio.sleep(request.sleep_ms / 1000)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return message("Flight")(ring=request.ring, to=request.city)

    async def watch_birds(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._note(context)
        number = 0
        try:
            while request.for_ever or number < request.count:
                yield message("Bird")(ring=str(number))
                number += 1
                await asyncio.sleep(0.005)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise
        if request.fail_after:
            await context.abort(grpc.StatusCode.DATA_LOSS, "a bird fell out")

    async def echo(self, request: Any, context: Any) -> Any:
        return request


def _service(loft: Loft) -> grpc.GenericRpcHandler:
    methods = {
        "GetBird": (grpc.unary_unary_rpc_method_handler, loft.get_bird),
        "SendBird": (grpc.unary_unary_rpc_method_handler, loft.send_bird),
        "WatchBirds": (grpc.unary_stream_rpc_method_handler, loft.watch_birds),
        "OldCall": (grpc.unary_unary_rpc_method_handler, loft.echo),
        "Echo": (grpc.unary_unary_rpc_method_handler, loft.echo),
    }
    service = pool().FindServiceByName(SERVICE)
    handlers = {
        name: make(
            function,
            request_deserializer=GetMessageClass(service.methods_by_name[name].input_type).FromString,
            response_serializer=GetMessageClass(service.methods_by_name[name].output_type).SerializeToString,
        )
        for name, (make, function) in methods.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


@asynccontextmanager
async def serve_loft(
    *, with_reflection: bool = True, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[tuple[str, Loft]]:
    """The server on a free port of this machine: its target and its methods."""
    loft = Loft()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_service(loft),))
    if with_reflection:
        reflection.enable_server_reflection((SERVICE, reflection.SERVICE_NAME), server, pool=pool())
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", loft
    finally:
        await server.stop(None)


@asynccontextmanager
async def loaded(**options: Any) -> AsyncIterator[tuple[OperationRegistry, Loft]]:
    """A registry with the operations of a loft in the namespace g, and the loft's methods."""
    async with serve_loft() as (target, loft), OperationRegistry(load_plugins(only=["grpc"])) as registry:
        await registry.load("grpc", namespace="g", target=target, **options)
        yield registry, loft
