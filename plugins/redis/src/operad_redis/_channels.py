"""The connection that receives events from channels: the inbox of a link, and topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection

from operad_redis._connection import LOST, disconnect, pack, stop

logger = logging.getLogger("operad.redis")


class Channels:
    """The connection on which a link receives events from its inbox and from topics."""

    def __init__(
        self,
        connection: AbstractConnection,
        receive: Callable[[str, bytes], None],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self._receive = receive
        self._on_lost = on_lost
        self._names: dict[str, int] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._closed = False
        self._sending = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def subscribe(self, *names: str) -> None:
        """Subscribe to channels. Return when the server has confirmed it. Raises one of `LOST` if that fails."""
        loop = asyncio.get_running_loop()
        confirmed = []
        for name in names:
            self._names[name] = self._names.get(name, 0) + 1
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(name, []).append(future)
            confirmed.append(future)
        await self._send("SUBSCRIBE", *names)
        await asyncio.gather(*confirmed)

    async def unsubscribe(self, name: str) -> None:
        """Remove one subscription of this link to a channel. Unsubscribe if it was the last one."""
        self._names[name] -= 1
        if not self._names[name]:
            del self._names[name]
            await self._send("UNSUBSCRIBE", name)

    async def _send(self, *command: str) -> None:
        async with self._sending:
            await self._connection.send_packed_command(pack(*command), check_health=False)

    async def _read(self) -> None:
        read = self._connection.read_response
        try:
            while True:
                message = await read()
                if message[0] == b"message":
                    self._receive(message[1].decode(errors="replace"), message[2])
                elif message[0] == b"subscribe":
                    for future in self._waiting.pop(message[1].decode(), ()):
                        if not future.done():
                            future.set_result(None)
        except LOST as error:
            if not self._closed:
                self._fail(error)
                self._on_lost(error)
        except Exception as error:  # as in Requests
            logger.exception("reading from channels failed; the link reconnects")
            self._fail(error)
            self._on_lost(error)

    def _fail(self, error: BaseException) -> None:
        self._closed = True
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # retrieved, for those that no longer wait
        self._waiting.clear()

    async def close(self) -> None:
        """Close the connection. Subscriptions that are not confirmed raise `ConnectionError`."""
        self._fail(ConnectionError("the connection to Redis is closed"))
        await stop(self._task)
        await disconnect(self._connection)
