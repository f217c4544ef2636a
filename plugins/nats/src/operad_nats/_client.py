"""nats-py's client, made strict in three places that it leaves open."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg


class StrictClient(Client):
    """A client that never falls back to plain text, knows when all is sent, and forgets what it could not send.

    nats-py upgrades to TLS if the server asks for it, whatever the URL says, and sends credentials either way. And
    it keeps what was not written when a connection broke, to write it to the next one, long after the callers of
    these requests were told that they failed.
    """

    def __init__(self, *, require_tls: bool) -> None:
        super().__init__()
        self._require_tls = require_tls

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self._require_tls and initial_connection and not info.get("tls_required"):
            raise errors.Error("nats: the URL demands TLS, which the server does not offer")
        await super()._process_info(info, initial_connection)

    async def barrier(self) -> None:
        """Return when the server has processed all that was published before.

        ``flush()`` alone does not do that: it writes its ping past the buffer, ahead of what waits there.
        """
        for turn in itertools.count():
            if not self.pending_data_size or not self.is_connected:
                break
            await asyncio.sleep(0 if turn < 10 else 0.001)
        await self.flush()

    def forget_unsent(self) -> None:
        """Drop what was not written yet; subscriptions are replayed by nats-py in any case."""
        self._pending.clear()
        self._pending_data_size = 0


class Sink(asyncio.Future[Msg]):
    """A subscription's receiver that hands each message over at once, in the order of the connection.

    nats-py gives every callback a task and a queue of its own, which loses the order between subscriptions and
    costs memory for each of ten thousand operations; a future it completes directly, while it parses.
    """

    def __init__(self, receive: Callable[[Msg], None]) -> None:
        super().__init__()
        self._receive = receive

    def set_result(self, message: Msg, /) -> None:
        """Pass a message on; the future itself never completes."""
        self._receive(message)
