"""The link of a participant to a Redis server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from functools import partial
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    ClusterDownError,
    InvalidResponse,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
)

from operad.plugin import (
    Delivery,
    Event,
    LinkDownError,
    NoRespondersError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    Registration,
    TransportError,
)
from operad.words import in_words
from operad_calls.transport import BrokerLink, encode, protocol
from operad_redis._burial import Burial
from operad_redis._channels import Channels
from operad_redis._connecting import connect, connect_commands
from operad_redis._connection import LOST, Argument, Pipeline, connections, pack, stop
from operad_redis._keys import Keys
from operad_redis._requests import Requests, ServerClock, began, came_to
from operad_redis._scripts import command, run
from operad_redis.config import RedisConfig

logger = logging.getLogger("operad.redis")

BEAT = 1.0
"""Seconds between two beats of a link that serves. A beat is a sign of life, and checks other links."""
LOOKED_AT = 8
"""The maximum number of other links that a link checks at each beat, in each of two ways."""
_NOT_OURS = (NoScriptError, ReadOnlyError, MovedError, ClusterDownError)
_DELIVERY = Delivery()


class RedisLink(BrokerLink):
    """A link over Redis: a connection for commands, one for channels and, if it serves, one for requests."""

    lost_errors = LOST

    def __init__(self, config: RedisConfig, on_event: OnEvent, on_link: OnLink) -> None:
        super().__init__(on_event, on_link, reconnect_wait=config.reconnect_wait, logger=logger)
        self._config = config
        self._pool = connections(
            config.url, {"socket_connect_timeout": config.connect_timeout, **config.connection_options}
        )
        options = self._pool.connection_kwargs
        self._home = {"host": options.get("host", "localhost"), "port": options.get("port", 6379)}
        self._keys = Keys(config.bus)
        self._burial = Burial(self._keys, self._dispatch, self.send)
        self._discovery = self._keys.channel(f"all:{protocol.DISCOVER}")
        self._id = secrets.token_hex(16)
        self._stream = self._keys.stream(self._id)
        self._lease_ms = int(config.lease * 1000)
        self._lifetime_ms = max(60_000, 4 * self._lease_ms)
        self._turn = secrets.randbelow(1_000)
        self._commands: Pipeline | None = None
        self._channels: Channels | None = None
        self._requests: Requests | None = None
        self._clock = ServerClock()
        self._served: dict[_Registration, None] = {}
        self._unfinished: list[str] = []
        self._beating: asyncio.Task[None] | None = None

    @property
    def inbox(self) -> str:
        """The address of this link, ``inbox:…``."""
        return f"inbox:{self._id}"

    # --- the connections ---------------------------------------------------------------------------

    def host(self) -> str:
        """See `BrokerLink.host`."""
        options = self._pool.connection_kwargs
        return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"

    async def establish(self) -> None:
        """See `BrokerLink.establish`."""
        try:
            self._commands = await connect_commands(
                self._pool, self._config.connect_timeout, self._keys.links, self.lost
            )
            self._channels = Channels(await self._connection(), self._receive, self.lost)
            await self._channels.subscribe(self._keys.channel(self.inbox))
            known: set[_Registration] = set()
            while added := self._served.keys() - known:  # more may come while these are being registered
                await asyncio.gather(*(self._register(item) for item in added))
                known |= added
        except LOST:
            self._pool.connection_kwargs.update(self._home)  # the node that a cluster sent us to is gone
            raise
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def _connection(self) -> AbstractConnection:
        return await connect(self._pool, self._config.connect_timeout)

    async def disconnect(self) -> None:
        """See `BrokerLink.disconnect`."""
        parts = (self._requests, self._channels, self._commands)
        self._requests = self._channels = self._commands = None
        if self._beating is not None:
            await stop(self._beating)
            self._beating = None
        for part in parts:
            if part is not None:
                await part.close()

    # --- commands ----------------------------------------------------------------------------------

    def _command(self, script: str, keys: list[str], *arguments: Argument) -> asyncio.Future[Any]:
        """Run a script, and return the future of its result."""
        assert self._commands is not None
        return run(self._commands, script, keys, *arguments)

    async def _register(self, item: _Registration) -> None:
        """Register an address on the server."""
        if item.group is None:
            assert self._channels is not None
            await self._channels.subscribe(item.name)
        else:
            await self._serve()
            await self._command("register", [item.name, self._keys.served(self._id)], self._id, item.group)

    def _acknowledge(self, commands: Pipeline, entry_id: str) -> None:
        # If it is lost, or refused by a read-only server, it is sent again on the next connection.
        again = partial(self._not_acknowledged, entry_id)
        commands.post(command("done", [self._stream, self._keys.load], self._id, entry_id), again)

    def _not_acknowledged(self, entry_id: str) -> None:
        self._unfinished.append(entry_id)

    # --- events in ---------------------------------------------------------------------------------

    def _receive(self, channel: str, data: bytes) -> None:
        self._take(data, _DELIVERY, protocol.DISCOVER if channel == self._discovery else None, channel)

    def _take(self, data: bytes, delivery: Delivery, operation_id: str | None, where: str) -> None:
        """Process an event. A request must be for ``operation_id``, at whose address it arrived."""
        self.take(data, delivery, lambda event: event["payload"].get("operationId") == operation_id, where)

    def reply(self, to: str, event: Event) -> None:
        """See `BrokerLink.reply`."""
        if self.is_up and self._commands is not None:
            self._commands.post(pack("PUBLISH", self._keys.channel(to), encode(event)))

    def _request(self, entry_id: str, fields: dict[bytes, bytes]) -> None:
        done, held = partial(self._done, entry_id), self._clock.since(began(entry_id, fields))
        delivery = Delivery(redelivered=fields.get(b"r") == b"1", done=done, held=held)
        self._take(fields.get(b"e", b""), delivery, came_to(fields), self._stream)

    def _done(self, entry_id: str) -> None:
        """Remove a finished request from the stream, now or on the next connection."""
        if self.is_up and self._commands is not None:
            with contextlib.suppress(ConnectionError):
                self._acknowledge(self._commands, entry_id)
                return
        self._not_acknowledged(entry_id)

    # --- events out --------------------------------------------------------------------------------

    async def send(self, to: str, event: Event) -> str | None:
        """Send an event. Return the inbox of the receiver if the event is a request to one link, else None.

        If the connection is lost before the server responds, the event may have been sent; no error is raised.

        Raises:
            CallError: ``SERIALIZATION_ERROR`` if the event has no JSON form.
            NoRespondersError: no live link serves the operation.
            LinkDownError: the link is not connected. Nothing was sent.
            PayloadTooLargeError: the event is too large. Nothing was sent.
            TransportError: ``to`` is not an address, or the server refused the event.
        """
        data, limit = protocol.encode_in_parts(event), self._config.max_payload
        if len(data) > limit:
            raise PayloadTooLargeError(f"the event has {len(data)} bytes; max_payload of the transport is {limit}")
        if self._commands is not None:
            await self._commands.room(len(data))
        await self.check_up()
        commands = self._commands
        assert commands is not None
        try:
            if to.startswith("op:"):
                taken = await self._dispatch(to, data, 0)
                if not taken:
                    raise NoRespondersError(f'no handler serves "{to[3:]}"')
                return f"inbox:{taken[0].decode()}" if len(taken) == 1 else None
            commands.post(pack("PUBLISH", self._keys.channel(to), data))
        except _NOT_OURS as error:  # the server is another one, or was reset
            self.lost(error)
            raise LinkDownError(f"the event was not sent: {in_words(error)}") from error
        except ResponseError as error:
            raise TransportError(f"Redis refused the event: {error}") from error
        except LOST:
            # It may have been sent, so do not raise `LinkDownError`; ``on_link`` has reported the loss.
            if self.is_up:
                raise
        return None

    async def _dispatch(
        self, operation: str, data: Argument, redelivered: int, first: int | str = ""
    ) -> list[bytes]:
        """Give a request to one link of each group. Return the ids of these links."""
        self._turn += 1
        keys = self._keys
        taken: list[bytes] = await self._command(
            "dispatch",
            [keys.operation(operation), keys.load],
            keys.streams,
            keys.inboxes,
            self._turn,
            data,
            redelivered,
            operation.encode("utf-8", "surrogatepass"),
            first,
        )
        if not (type(taken) is list and all(type(link) is bytes and link.isalnum() for link in taken)):
            error = InvalidResponse(f"expected the ids of links, got {taken!r:.100}")
            self.lost(error)  # what follows on this connection may be the reply to another command
            raise error
        return taken

    # --- serving -----------------------------------------------------------------------------------

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """Register an address. A link that is not connected does so when it has reconnected.

        Raises:
            TransportError: ``topic`` is not an address, is not ``op:…`` although a group is given, or is refused.
            LinkDownError: the link is closed.
        """
        if topic.startswith("op:"):
            # Without a group each link gets everything: it is a group of its own.
            item = _Registration(self, self._keys.operation(topic), f"link {self._id}" if group is None else group)
        elif group is None:
            item = _Registration(self, self._keys.channel(topic), None)
        else:
            raise TransportError(f'"{topic}" is not registered: expected an address "op:…" for a group')
        if self.is_closed:
            raise LinkDownError("the link is closed; open a new one")
        self._served[item] = None
        if not self.is_up:
            return item  # registered with all others when the connection is back
        try:
            await self._register(item)
        except LOST as error:
            if self.is_up:
                self._served.pop(item, None)
                raise TransportError(f'"{topic}" is not registered: {in_words(error)}') from error
        return item

    async def _serve(self) -> None:
        """Make the stream of the link and start its reader, if this has not happened on this connection."""
        if self._requests is not None:
            await self._requests.ready
            return
        self._requests = requests = Requests(self._stream, self._request, self.lost)
        try:
            commands = self._commands
            assert commands is not None
            unfinished, self._unfinished = self._unfinished, []
            for entry_id in unfinished:
                self._acknowledge(commands, entry_id)
            keys = [self._keys.links, self._keys.load, self._stream]
            self._clock.set(await self._command("enroll", keys, self._id, self._lifetime_ms))
            requests.start(await self._connection())
        except BaseException as error:
            self._requests = None
            if not requests.ready.done():
                requests.ready.set_exception(error)
                requests.ready.exception()
            raise

    async def unregister(self, item: _Registration) -> None:
        """Stop serving an address; idempotent. An error of the server is only logged."""
        if item not in self._served:
            return
        del self._served[item]
        if not self.is_up:
            return
        try:
            if item.group is None:
                assert self._channels is not None
                await self._channels.unsubscribe(item.name)
            else:
                await self._command("unregister", [item.name, self._keys.served(self._id)], self._id, item.group)
        except LOST as error:
            logger.debug("unregistering: %r", error)

    async def drain(self, timeout: float) -> None:
        """Stop serving all addresses. Return when the owner of the link has received all its requests.

        Raises:
            TransportError: the drain took longer than ``timeout`` seconds, or the connection was lost.
        """
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self.unregister(item) for item in list(self._served)))
                if self.is_up and self._commands is not None:
                    if self._requests is not None:
                        last = await self._commands.ask(pack("XREVRANGE", self._stream, "+", "-", "COUNT", 1))
                        if last:
                            await self._requests.seen(last[0][0].decode())
                    await self._commands.flushed()
        except TimeoutError:
            raise TransportError(f"the drain took longer than {timeout:g} s") from None
        except Exception as error:  # as in `_beat`
            raise TransportError(f"the drain failed: {in_words(error)}") from error

    async def sign_off(self) -> None:
        """Give unfinished requests to other links; see `BrokerLink.sign_off`."""
        self._served.clear()
        if self.is_up and self._commands is not None:
            async with asyncio.timeout(self._config.connect_timeout):
                if self._requests is not None:
                    try:
                        await self._burial.bury(self._commands, self._id, "")
                    except (AttributeError, TypeError, ValueError) as error:  # a reply of another shape
                        raise InvalidResponse(str(error)) from error
                await self._commands.flushed()

    # --- signs of life -----------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Detect a dead connection. If the link serves, also give signs of life and remove dead links."""
        lease = self._config.lease
        keys = [self._keys.links, self._stream, self._keys.served(self._id)]
        options = (self._id, self._keys.inboxes, self._lease_ms, self._lifetime_ms, LOOKED_AT)
        try:
            while self._commands is not None:
                if self._requests is None or not self._requests.ready.done():
                    async with asyncio.timeout(lease):  # not wait_for, which can lose a cancellation
                        await self._commands.flushed()
                    await asyncio.sleep(lease / 3)
                    continue
                async with asyncio.timeout(lease):
                    enrolled, dead, now = await self._command("beat", keys, *options)
                self._clock.set(now)
                if not enrolled:
                    raise ConnectionError("other links removed this link as dead, or its stream was deleted")
                for link in dead:
                    await self._burial.bury(self._commands, link.decode(), str(self._lease_ms))
                await asyncio.sleep(min(BEAT, lease / 3))
        except Exception as error:  # noqa: BLE001  # replies of a damaged stream may have any shape
            self.lost(error)


class _Registration:
    """A registration of an address on a `RedisLink`: with a group on its stream, otherwise on a channel."""

    def __init__(self, link: RedisLink, name: str, group: str | None) -> None:
        self._link = link
        self.name = name
        self.group = group

    async def unregister(self) -> None:
        """Stop serving the address; idempotent."""
        await self._link.unregister(self)
