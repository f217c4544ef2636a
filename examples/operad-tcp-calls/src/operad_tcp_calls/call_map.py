"""The call map, the calling side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self

import attrs

from operad import CallError, ErrorCode, Identity, Plugins, ResponseEnvelope, Subscription
from operad.plugin import TransportError
from operad_tcp_calls.lines import MAX_LINE, Connection, Request
from operad_tcp_calls.transport import TCP


class TCPCallMap:
    """A call map that opens a connection for each call. TCP then reports its end and slows down its items."""

    def __init__(self, transport: TCP, *, plugins: Plugins | None = None, timeout: float = 30.0) -> None:
        self._transport, self._timeout = transport, timeout
        self._kinds = (plugins or Plugins()).envelope_kinds
        self._connections: set[Connection] = set()
        self._is_open = False

    async def open(self) -> None:
        """Check that the server can be reached. Raises `TransportError` if it cannot."""
        try:
            async with asyncio.timeout(self._transport.connect_timeout):
                connection = await self._connect()
        except OSError as error:  # includes TimeoutError
            raise TransportError(
                f"{self._transport.url} cannot be reached: {error!r}; start the server or check the URL"
            ) from error
        await connection.close()
        self._is_open = True

    async def aclose(self) -> None:
        """End the calls in progress with ``ABORTED``; idempotent."""
        self._is_open = False
        for connection in list(self._connections):
            await connection.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def call(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> ResponseEnvelope[Any]:
        """Return the result of an operation, or the first item of a subscription."""
        if timeout is None and deadline is None:
            timeout = self._timeout
        ends = earlier(deadline, timeout)
        request = Request(
            operation=operation_id,
            input=input,
            identity=None if identity is None else identity.to_wire(),
            parent=parent_request_id,
            key=idempotency_key,
        )
        async with aclosing(self._items(request, None, ends)) as items:
            async for envelope in items:
                return envelope
        raise CallError(ErrorCode.UNKNOWN_ERROR, f"{operation_id} sent no item")

    def subscribe(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
    ) -> Subscription:
        """Subscribe to an operation. ``timeout`` limits the wait for each item, ``deadline`` the whole stream."""
        request = Request(
            operation=operation_id,
            stream=True,
            input=input,
            identity=None if identity is None else identity.to_wire(),
            parent=parent_request_id,
        )
        return Subscription(self._items(request, timeout, deadline))

    async def _items(
        self, request: Request, timeout: float | None, deadline: float | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Yield the envelopes of a request; each wait ends after `timeout`, and all of them at `deadline`."""
        if not self._is_open:
            raise self._lost(request, None, "the call map is not open")
        connection: Connection | None = None
        ends = None
        try:
            while True:
                ends = earlier(deadline, timeout)
                # Only the wait is limited: the reader of a stream may take its time with each item.
                async with asyncio.timeout(seconds_until(ends)):
                    if connection is None:
                        connection = await self._connect()
                        self._connections.add(connection)
                        if not self._is_open:
                            raise ConnectionError("closed while it connected")
                        rest = seconds_until(deadline)
                        timeout_ms = None if rest is None else rest * 1000
                        await connection.send(attrs.asdict(attrs.evolve(request, timeout_ms=timeout_ms)))
                    message = await connection.receive()
                if "error" in message:
                    error = message["error"]
                    raise CallError(str(error["code"]), str(error["message"]), error.get("details"))
                if "done" in message:
                    return
                yield self._kinds.from_wire(message["item"])
        except TimeoutError:
            raise CallError(
                ErrorCode.TIMEOUT, f"{request.operation} did not respond in time", {"deadline": ends}
            ) from None
        except OSError as error:
            raise self._lost(request, connection, error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CallError(
                ErrorCode.SERIALIZATION_ERROR, f"{self._transport.url} sent an invalid message: {error!r}"
            ) from error
        finally:
            if connection is not None:
                self._connections.discard(connection)
                await connection.close()

    def _lost(self, request: Request, connection: Connection | None, reason: object) -> CallError:
        if connection is not None and not self._is_open:
            return CallError(ErrorCode.ABORTED, "the call map was closed")
        sent = connection is not None
        lost = CallError(
            ErrorCode.UNAVAILABLE,
            f"{self._transport.url}: {reason}",
            {"operationId": request.operation, "sent": sent},
        )
        lost.ran = None if sent else False
        return lost

    async def _connect(self) -> Connection:
        return Connection(*await asyncio.open_connection(*self._transport.address, limit=MAX_LINE))


def earlier(deadline: float | None, timeout: float | None) -> float | None:
    """Return the earlier of a deadline (epoch ms) and a timeout (s from now), in epoch ms; None without either."""
    ends = None if timeout is None else time.time() * 1000 + timeout * 1000
    return min((value for value in (deadline, ends) if value is not None), default=None)


def seconds_until(deadline: float | None) -> float | None:
    """Return the seconds until a deadline in epoch ms; None without a deadline."""
    return None if deadline is None else deadline / 1000 - time.time()
