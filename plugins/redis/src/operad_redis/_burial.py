"""The removal of dead links from the bus, which gives their requests to other links."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from operad.plugin import ErrorCode, Event, TransportError
from operad_calls.transport import decode, protocol
from operad_redis._connection import Pipeline, pack
from operad_redis._keys import Keys
from operad_redis._requests import began, order
from operad_redis._scripts import run

logger = logging.getLogger("operad.redis")

_AT_ONCE = 100


class Burial:
    """The removal of dead links from a bus.

    Args:
        keys: the keys of the bus.
        dispatch: gives a request to other links, and returns the ids of these links. Its arguments are the
            address, the data, 1 if a worker had read the request (else 0), and when it was first sent, in ms.
        send: sends an event to an inbox.
    """

    def __init__(
        self,
        keys: Keys,
        dispatch: Callable[[str, bytes, int, int], Awaitable[list[bytes]]],
        send: Callable[[str, Event], Awaitable[str | None]],
    ) -> None:
        self._keys = keys
        self._dispatch = dispatch
        self._send = send

    async def bury(self, commands: Pipeline, link: str, lease: str) -> None:
        """Remove a dead link from the bus, and give its requests to other links.

        Args:
            commands: the pipeline on which the commands are sent.
            link: the id of the link.
            lease: a time in ms, as text. A link that listens and has sent a sign of life within this time is not
                removed. If the text is empty, the link is always removed.
        """
        keys = self._keys
        reaped = [keys.links, keys.load, keys.stream(link), keys.served(link), keys.dead(link)]
        last = await run(commands, "reap", reaped, link, keys.inboxes + link, lease)
        if last is None:
            return
        delivered = order(last.decode())
        while True:
            entries = await commands.ask(pack("XRANGE", keys.dead(link), "-", "+", "COUNT", _AT_ONCE))
            for entry_id, pairs in entries:
                fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
                was_read = order(entry_id.decode()) <= delivered or fields.get(b"r") == b"1"
                await self._pass_on(fields, was_read, began(entry_id.decode(), fields))
                commands.post(pack("XDEL", keys.dead(link), entry_id))
            if len(entries) < _AT_ONCE:
                break
        commands.post(pack("DEL", keys.dead(link)))

    async def _pass_on(self, fields: dict[bytes, bytes], was_read: bool, first: int) -> None:
        """Give a request of a dead link to another link. If no other link serves it, send its caller an error."""
        data = fields.get(b"e", b"")
        try:
            operation = fields[b"o"].decode("utf-8", "surrogatepass")
            if await self._dispatch(operation, data, int(was_read), first):
                return
            payload = decode(data)["payload"]
            message = f'"{operation[3:]}": its handler was lost, and no other handler serves it'
            details = {"operationId": operation[3:], "sent": was_read}
            lost = protocol.error_event(payload["requestId"], ErrorCode.UNAVAILABLE, message, details)
            await self._send(payload["replyTo"], lost)
        except (KeyError, ValueError, TypeError, AttributeError, TransportError) as error:
            logger.debug("dropped an entry without a usable caller: %r", error)
