"""The call server, the serving side."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal, Self

from operad import CallError, ConfigError, ErrorCode, Identity, OperationContext, OperationRegistry
from operad.plugin import TransportError, check_options, mask_error
from operad_tcp_calls.lines import MAX_LINE, Connection, Request
from operad_tcp_calls.transport import TCP

FIRST_LINE_SECONDS = 10.0
"""Seconds within which a client must send its request."""


class TCPCallServer:
    """A server for the operations of a registry, with one request on each connection. Use it with ``async with``.

    Args:
        registry: the registry.
        transport: the address to listen on.
        identity: ``"delegate"`` trusts the identity in the request; otherwise every caller is anonymous.
        mask_errors: whether to hide the messages of unexpected exceptions from callers.
        max_concurrent: the maximum number of running calls. Further calls fail with ``OVERLOADED``.
        drain_timeout: seconds that running calls have to finish when the server closes.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        transport: TCP,
        *,
        identity: Literal["delegate"] | None = None,
        mask_errors: bool = True,
        max_concurrent: int = 1000,
        drain_timeout: float = 5.0,
    ) -> None:
        if identity not in (None, "delegate"):
            raise ConfigError(
                f'identity: expected "delegate" or None, got {identity!r}; TCP authenticates no peer'
            )
        self._registry, self._transport = registry, transport
        self._identity, self._mask, self._max, self._drain = identity, mask_errors, max_concurrent, drain_timeout
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._accept, *self._transport.address, limit=MAX_LINE)
        except OSError as error:
            raise TransportError(f"cannot listen on {self._transport.url}: {error.strerror or error}") from error
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None, "opened first"
        self._server.close()
        if self._running:
            await asyncio.wait(self._running, timeout=self._drain)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Each connection may hold a request of MAX_LINE bytes.
        if self._server is None or not self._server.is_serving() or len(self._tasks) >= 2 * self._max:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it begins closes nothing.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, connection: Connection) -> None:
        """Read the request of a connection and run it; stop when the caller leaves."""
        task = asyncio.current_task()
        assert task is not None, "runs as a task"
        leaving: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(FIRST_LINE_SECONDS):
                message = await connection.receive()
            leaving = asyncio.create_task(connection.left())
            leaving.add_done_callback(lambda left: left.cancelled() or task.cancel())
            self._running.add(task)
            try:
                await self._run(message, connection)
            except CallError as error:
                masked = mask_error(error, mask=self._mask, operation_id=str(message.get("operation")))
                await connection.send({"error": masked.to_wire()})
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # the caller left, its message is unreadable, or the server closes: closing is enough
        finally:
            self._running.discard(task)
            if leaving is not None:
                leaving.cancel()
            await connection.close()

    async def _run(self, message: dict[str, Any], connection: Connection) -> None:
        if len(self._running) > self._max:
            raise CallError(ErrorCode.OVERLOADED, f"{self._max} calls are already running", {"limit": self._max})
        try:
            request = check_options(message, Request, where="request")
            identity = None
            if self._identity == "delegate" and request.identity is not None:
                identity = Identity.from_wire(request.identity)
        except (ConfigError, ValueError) as error:
            raise CallError(ErrorCode.SERIALIZATION_ERROR, str(error)) from error
        context = OperationContext(
            parent_request_id=request.parent,
            identity=identity,
            deadline=None if request.timeout_ms is None else time.time() * 1000 + request.timeout_ms,
            idempotency_key=request.key,
        )
        if not request.stream:
            envelope = await self._registry.execute(request.operation, request.input, context)
            await connection.send({"item": envelope.to_wire()})
            return
        async with self._registry.subscribe(request.operation, request.input, context) as items:
            async for envelope in items:
                await connection.send({"item": envelope.to_wire()})
        await connection.send({"done": True})
