"""The source ``grpc``: one channel, and an operation for each method that can be called."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from operad import (
    CallError,
    ErrorCode,
    Operation,
    OperationContext,
    OperationSpec,
    OperationType,
    Plugins,
    ResponseEnvelope,
    SourceError,
)
from operad.plugin import SourceContext, SourceSession
from operad_grpc.config import GRPCConfig, TLSConfig
from operad_grpc.descriptors import Metadata, read_descriptor_set, reflect
from operad_grpc.envelopes import grpc_envelope
from operad_grpc.errors import call_error
from operad_grpc.schemas import input_schema, output_schema


class GRPCSession(SourceSession):
    """The operations of a server, and the channel to it."""

    def __init__(self, operations: Sequence[Operation[..., Any]], channel: grpc.aio.Channel) -> None:
        super().__init__(operations)
        self._channel = channel

    async def aclose(self) -> None:
        """Close the channel, and cancel running RPCs."""
        await self._channel.close()


async def from_grpc(target: str, *, namespace: str = "grpc", **options: Any) -> GRPCSession:
    """Return a session with the operations of a server. ``async with`` closes the connection.

    Args:
        target: a gRPC name, such as ``127.0.0.1:50051``.
        namespace: the namespace of the operations.
        options: the other fields of `GRPCConfig`.

    Raises:
        SourceError: the server cannot be reached or does not describe its services, or a file cannot be read.
    """
    context = SourceContext(plugins=Plugins(), namespace=namespace)
    return await open_session(GRPCConfig(target=target, **options), context)


async def open_session(config: GRPCConfig, context: SourceContext) -> GRPCSession:
    """Return a session for a configuration. Raises `SourceError` as `from_grpc` does."""
    channel = _channel(config, context)
    try:
        pool, names = await _describe(channel, config, context)
        services = [_service(pool, name) for name in names]
        operations = list(_operations(services, pool, channel, config, context))
    except BaseException:
        await channel.close()
        raise
    return GRPCSession(operations, channel)


# --- connecting ------------------------------------------------------------------------------------


def _channel(config: GRPCConfig, context: SourceContext) -> grpc.aio.Channel:
    options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", config.max_message)]
    if config.tls is False:
        if config.token is not None and not _is_local(config.target):
            raise SourceError(
                f"grpc: expected TLS to send a token, got {config.target} without TLS; set tls = true, "
                "or use a server on this machine"
            )
        return grpc.aio.insecure_channel(config.target, options=options)
    tls = TLSConfig() if config.tls is True else config.tls
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    credentials = grpc.ssl_channel_credentials(
        _pem(tls.root_certificates, context), _pem(tls.private_key, context), _pem(tls.certificate_chain, context)
    )
    return grpc.aio.secure_channel(config.target, credentials, options=options)


def _pem(path: str | Path | None, context: SourceContext) -> bytes | None:
    if path is None:
        return None
    try:
        return context.path(path).read_bytes()
    except OSError as error:
        raise SourceError(f"grpc: {path} cannot be read: {error.strerror or error}") from error


def _is_local(target: str) -> bool:
    if target.startswith("unix:"):
        return True
    host = target.rpartition("/")[2].rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _metadata(config: GRPCConfig) -> Metadata:
    metadata = [(key.lower(), value) for key, value in config.metadata.items()]
    return metadata if config.token is None else [*metadata, ("authorization", f"Bearer {config.token}")]


async def _describe(
    channel: grpc.aio.Channel, config: GRPCConfig, context: SourceContext
) -> tuple[DescriptorPool, Sequence[str]]:
    if config.descriptor_set is not None:
        path = context.path(config.descriptor_set)
        pool, names = await asyncio.to_thread(read_descriptor_set, path)
        return pool, names if config.services is None else config.services
    try:
        async with asyncio.timeout(config.connect_timeout):
            return await reflect(channel, _metadata(config), config.services)
    except TimeoutError:
        raise SourceError(
            f"grpc: {config.target} did not describe its services within {config.connect_timeout:g} s"
        ) from None
    except grpc.aio.AioRpcError as error:
        raise SourceError(f"grpc: {config.target}: {error.code().name}: {error.details()}") from error


def _service(pool: DescriptorPool, name: str) -> ServiceDescriptor:
    try:
        return pool.FindServiceByName(name)
    except KeyError:
        raise SourceError(f"grpc: services: {name} not found; use a full name, such as package.Service") from None


# --- operations ------------------------------------------------------------------------------------


def _operations(
    services: Sequence[ServiceDescriptor],
    pool: DescriptorPool,
    channel: grpc.aio.Channel,
    config: GRPCConfig,
    context: SourceContext,
) -> Iterable[Operation[..., Any]]:
    names = Counter(service.name for service in services)
    for service in services:
        name = service.name if names[service.name] == 1 else service.full_name
        for method in service.methods:
            if method.client_streaming:
                context.logger.warning("%s is left out: it takes a stream of messages", method.full_name)
                continue
            spec = _spec(method, f"{name}.{method.name}", context.namespace or "grpc")
            yield Operation(spec, _Method(method, pool, channel, config).handler())


def _spec(method: MethodDescriptor, name: str, namespace: str) -> OperationSpec:
    options = method.GetOptions()
    if method.server_streaming:
        type_ = OperationType.SUBSCRIPTION
    elif options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
        type_ = OperationType.QUERY
    else:
        type_ = OperationType.MUTATION
    return OperationSpec(
        namespace=namespace,
        name=name,
        type=type_,
        description=f"gRPC method {method.name} of {method.containing_service.full_name}.",
        input_schema=input_schema(method.input_type),
        output_schema=output_schema(method.output_type),
        deprecated=options.deprecated,
        metadata={
            "grpcMethod": f"/{method.containing_service.full_name}/{method.name}",
            "idempotencyLevel": MethodOptions.IdempotencyLevel.Name(options.idempotency_level),
        },
    )


class _Method:
    """A method of a service, with its stub."""

    def __init__(
        self, method: MethodDescriptor, pool: DescriptorPool, channel: grpc.aio.Channel, config: GRPCConfig
    ) -> None:
        self._path = f"/{method.containing_service.full_name}/{method.name}"
        self._pool = pool
        self._metadata = tuple(_metadata(config))
        self._timeout = config.timeout
        self._streams = method.server_streaming
        self._input = GetMessageClass(method.input_type)
        make = channel.unary_stream if self._streams else channel.unary_unary
        self._stub = make(
            self._path,
            request_serializer=self._input.SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )

    def handler(self) -> Callable[..., Any]:
        """Return the handler for the operation of the method."""
        return self.stream if self._streams else self.call

    async def call(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        """Call a unary method. A cancellation of this task cancels the RPC."""
        remaining = context.remaining()
        rpc = self._stub(
            self._message(input),
            metadata=self._metadata,
            timeout=self._timeout if remaining is None else remaining,
        )
        try:
            answer = await rpc
            initial, trailing = await rpc.initial_metadata(), await rpc.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            raise call_error(error, self._path) from error
        return grpc_envelope(self._json(answer), self._path, initial or (), trailing or ())

    async def stream(self, input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[Any]]:
        """Subscribe to a server stream. Closing the generator cancels the RPC."""
        rpc = self._stub(self._message(input), metadata=self._metadata, timeout=context.remaining())
        try:
            initial = await rpc.initial_metadata()
            async for answer in rpc:
                yield grpc_envelope(self._json(answer), self._path, initial or ())
        except grpc.aio.AioRpcError as error:
            raise call_error(error, self._path) from error
        finally:
            rpc.cancel()

    def _message(self, input: Any) -> Any:
        try:
            return json_format.ParseDict(input, self._input(), descriptor_pool=self._pool)
        except json_format.ParseError as error:
            errors = [{"path": "$", "message": str(error), "keyword": "protobuf"}]
            raise CallError(
                ErrorCode.VALIDATION_ERROR, f"invalid input for {self._path}: {error}", {"errors": errors}
            ) from error

    def _json(self, message: Any) -> Any:
        return json_format.MessageToDict(
            message, always_print_fields_with_no_presence=True, descriptor_pool=self._pool
        )
