"""Descriptors of services: from a descriptor set, or by server reflection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from operad import SourceError

_INTERNAL = ("grpc.reflection.", "grpc.health.", "grpc.channelz.")
# The messages of both versions have the same wire form.
_REFLECTION = tuple(
    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")
)

Metadata = Iterable[tuple[str, str]]


def read_descriptor_set(path: Path) -> tuple[DescriptorPool, list[str]]:
    """Return the pool and the service names of a descriptor set. Raises `SourceError` if it cannot be read."""
    try:
        files = FileDescriptorSet.FromString(path.read_bytes()).file
    except (OSError, DecodeError) as error:
        raise SourceError(f"grpc: {path} cannot be read as a descriptor set: {error}") from error
    names = [f"{file.package}.{service.name}".lstrip(".") for file in files for service in file.service]
    return _pool({file.name: file for file in files}), names


async def reflect(
    channel: grpc.aio.Channel, metadata: Metadata, services: Iterable[str] | None
) -> tuple[DescriptorPool, list[str]]:
    """Return the pool and the service names that a server describes by reflection.

    Raises:
        SourceError: the server has no reflection, or does not describe a service or a file that it names.
        grpc.aio.AioRpcError: the server cannot be reached, or refuses the request.
    """
    for method in _REFLECTION:
        try:
            return await _Reflection(channel, method, metadata).describe(services)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise SourceError("grpc: the server offers no reflection; turn it on in the server, or set descriptor_set")


class _Reflection:
    """Requests to the reflection service of a server, each in a separate call.

    The method takes a stream, and a unary call sends a stream of one message. Writing to a stream that the server
    has already refused would hide the reason (grpcio then reports INTERNAL).
    """

    def __init__(self, channel: grpc.aio.Channel, method: str, metadata: Metadata) -> None:
        self._metadata = tuple(metadata)
        self._call = channel.unary_unary(
            method,
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )

    async def describe(self, services: Iterable[str] | None) -> tuple[DescriptorPool, list[str]]:
        listed = await self._ask(list_services="*")
        offered = [service.name for service in listed.list_services_response.service]
        wanted = (
            [name for name in offered if not name.startswith(_INTERNAL)] if services is None else list(services)
        )
        files: dict[str, FileDescriptorProto] = {}
        for name in wanted:
            self._keep(files, await self._ask(file_containing_symbol=name), name)
        while missing := _missing(files):
            for name in missing:
                self._keep(files, await self._ask(file_by_filename=name), name)
        return _pool(files), wanted

    async def _ask(self, **question: str) -> Any:
        return await self._call(ServerReflectionRequest(**question), metadata=self._metadata)

    def _keep(self, files: dict[str, FileDescriptorProto], answer: Any, name: str) -> None:
        if answer.HasField("error_response"):
            raise SourceError(f"grpc: the server cannot describe {name}: {answer.error_response.error_message}")
        before = len(files)
        for serialized in answer.file_descriptor_response.file_descriptor_proto:
            file = FileDescriptorProto.FromString(serialized)
            files.setdefault(file.name, file)
        if len(files) == before and name not in files and name in _missing(files):
            raise SourceError(f"grpc: the server does not describe the file {name}, which its services import")


def _missing(files: Mapping[str, FileDescriptorProto]) -> set[str]:
    return {name for file in files.values() for name in file.dependency} - files.keys()


def _pool(files: Mapping[str, FileDescriptorProto]) -> DescriptorPool:
    """Return a new pool, because two servers may have different messages with the same name."""
    pool = DescriptorPool()
    added: set[str] = set()

    def add(file: FileDescriptorProto) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for name in file.dependency:
            if name not in files:
                raise SourceError(f"grpc: {file.name} imports {name}, which is missing (use --include_imports)")
            add(files[name])
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:  # raised by protobuf for an invalid file
            raise SourceError(f"grpc: expected a valid descriptor of {file.name}: {error}") from error

    for file in files.values():
        add(file)
    return pool
