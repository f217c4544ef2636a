"""`RedisLink`: one participant's connections to a Redis server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from functools import partial
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ClusterDownError, MovedError, NoScriptError, ReadOnlyError, ResponseError

from operad.plugin import (
    Delivery,
    ErrorCode,
    Event,
    LinkDownError,
    NoRespondersError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    Registration,
    TransportError,
)
from operad_calls.transport import Reports, decode, encode, protocol, unreadable
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
"""Seconds between signs of life of a link that serves; each also looks for dead links."""
LOOKED_AT = 8
"""How many other links a link checks at each beat."""
_LONGEST_WAIT = 2.0
_NOT_OURS = (NoScriptError, ReadOnlyError, MovedError, ClusterDownError)
_DELIVERY = Delivery()
DISCOVER = "operad.discover"
"""The one operation that a request to everybody may run."""


class RedisLink:
    """Two connections, for commands and for channels, and a third one for requests once the link serves."""

    def __init__(self, config: RedisConfig, on_event: OnEvent, on_link: OnLink) -> None:
        self._config = config
        self._on_event = on_event
        self._on_link = on_link
        self._pool = connections(
            config.url, {"socket_connect_timeout": config.connect_timeout, **config.connection_options}
        )
        options = self._pool.connection_kwargs
        self._home = {"host": options.get("host", "localhost"), "port": options.get("port", 6379)}
        self._keys = Keys(config.bus)
        self._burial = Burial(self._keys, self._dispatch, self.send)
        self._discovery = self._keys.channel(f"all:{DISCOVER}")
        self._reports = Reports(logger)
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
        self._epoch = 0
        self._is_up = False
        self._broken: BaseException | None = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def inbox(self) -> str:
        """The address of this link, ``inbox:…``."""
        return f"inbox:{self._id}"

    # --- the connections ---------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect and listen at the inbox. Raises `LinkDownError`."""
        try:
            await self._establish()
        except LOST as error:
            await self._disconnect()
            raise LinkDownError(f"no connection to {self._host()}: {error}") from error
        except BaseException:
            await self._disconnect()
            raise

    def _host(self) -> str:
        options = self._pool.connection_kwargs
        return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"

    async def _establish(self) -> None:
        """Open the connections, and make the server know again what this link serves."""
        self._broken = None
        self._commands = await connect_commands(
            self._pool, self._config.connect_timeout, self._keys.links, self._lost
        )
        self._channels = Channels(await self._connection(), self._receive, self._lost)
        await self._channels.subscribe(self._keys.channel(self.inbox))
        known: set[_Registration] = set()
        while added := self._served.keys() - known:  # more may come while these are being registered
            await asyncio.gather(*(self._register(item) for item in added))
            known |= added
        if self._broken is not None:
            raise ConnectionError("lost again") from self._broken
        self._beating = asyncio.get_running_loop().create_task(self._beat())
        self._epoch += 1
        self._is_up = True
        self._on_link("up", self._epoch)

    async def _connection(self) -> AbstractConnection:
        return await connect(self._pool, self._config.connect_timeout)

    def _lost(self, error: BaseException) -> None:
        """A connection broke, or the server lost its memory: start again from nothing."""
        if self._closed:
            return
        if not self._is_up:
            self._broken = error
            return
        logger.debug("the connection to %s is lost: %r", self._host(), error)
        self._is_up = False
        self._on_link("down", self._epoch)
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        wait = self._config.reconnect_wait
        while not self._closed:
            try:
                await self._disconnect()
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311  # it only spreads the herd
                wait = min(2 * wait, _LONGEST_WAIT)
                await self._establish()
            except LOST as error:
                logger.debug("no connection to %s: %r", self._host(), error)
                self._pool.connection_kwargs.update(self._home)  # the node that a cluster sent us to is gone
            except Exception:  # whatever it is, it must not be the end of the link
                logger.exception("the connection to %s", self._host())
            else:
                return

    async def _disconnect(self) -> None:
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
        """Run a script; the future is its result."""
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
        self._deliver(data, _DELIVERY, DISCOVER if channel == self._discovery else None)

    def _deliver(self, data: bytes, delivery: Delivery, operation_id: str | None) -> None:
        """Take an event; one that is a request has to be for ``operation_id``, to whose address it came."""
        try:
            event = decode(data)
            if event["type"].startswith("link."):
                raise ValueError(f"only a link makes a {event['type']}")
        except ValueError as error:
            self._on_unusable(data, delivery, error)
            return
        if event["type"] != protocol.REQUESTED:
            if delivery.done is not None:  # nobody works on it
                delivery.done()
        elif event["payload"].get("operationId") != operation_id:
            why = "it came to an address that is not its operation's"
            self._on_unusable(data, delivery, why, ErrorCode.ACCESS_DENIED)
            return
        self._tell(event, delivery)

    def _tell(self, event: Event, delivery: Delivery) -> None:
        try:
            self._on_event(event, delivery)
        except Exception:  # a defect of the receiver must not end the connection
            logger.exception("handling an event failed")

    def _on_unusable(
        self, data: bytes, delivery: Delivery, why: object, code: str = ErrorCode.SERIALIZATION_ERROR
    ) -> None:
        """A message of no use: who waits for what it is about is told, if that can be read."""
        self._reports.refuse("bus", f"dropped a message: {why}")
        if delivery.done is not None:
            delivery.done()
        found = unreadable(data, why, code)
        if found is None:
            return
        if not found.is_request:
            self._tell(found.event, _DELIVERY)
        elif found.reply_to is not None and self._is_up and self._commands is not None:
            with contextlib.suppress(TransportError, ConnectionError):  # no address; lost meanwhile
                self._commands.post(pack("PUBLISH", self._keys.channel(found.reply_to), encode(found.event)))

    def _request(self, entry_id: str, fields: dict[bytes, bytes]) -> None:
        done, held = partial(self._done, entry_id), self._clock.since(began(entry_id, fields))
        delivery = Delivery(redelivered=fields.get(b"r") == b"1", done=done, held=held)
        self._deliver(fields.get(b"e", b""), delivery, came_to(fields))

    def _done(self, entry_id: str) -> None:
        """Take a request off the stream: its work has ended."""
        if self._is_up and self._commands is not None:
            with contextlib.suppress(ConnectionError):
                self._acknowledge(self._commands, entry_id)
                return
        self._not_acknowledged(entry_id)

    # --- events out --------------------------------------------------------------------------------

    async def send(self, to: str, event: Event) -> str | None:
        """Send an event; return the inbox of the member that got it, if it is a request.

        Raises:
            CallError: ``SERIALIZATION_ERROR``.
            NoRespondersError: no live link serves the operation.
            LinkDownError: there is no connection; nothing was sent.
            PayloadTooLargeError: nothing was sent.
            TransportError: ``to`` is not an address, or the server refused the event.
        """
        data, limit = protocol.encode_in_parts(event), self._config.max_payload
        if len(data) > limit:
            raise PayloadTooLargeError(f"the event has {len(data)} bytes, the transport takes {limit}")
        if self._commands is not None:
            await self._commands.room(len(data))
        if not self._is_up or (commands := self._commands) is None:
            await asyncio.sleep(0)  # whoever calls again in a loop must not keep the link from coming back
            raise LinkDownError(f"the connection to {self._host()} is down")
        try:
            if to.startswith("op:"):
                taken = await self._dispatch(to, data, 0)
                if not taken:
                    raise NoRespondersError(f'no handler serves "{to[3:]}"')
                return f"inbox:{taken[0].decode()}" if len(taken) == 1 else None
            commands.post(pack("PUBLISH", self._keys.channel(to), data))
        except _NOT_OURS as error:  # the server is another one, or was reset
            self._lost(error)
            raise LinkDownError(f"not sent: {error}") from error
        except ResponseError as error:
            raise TransportError(f"Redis refused the event: {error}") from error
        except LOST:
            # It may have been sent, so do not raise `LinkDownError`; ``on_link`` has reported the loss.
            if self._is_up:
                raise
        return None

    async def _dispatch(
        self, operation: str, data: Argument, redelivered: int, first: int | str = ""
    ) -> list[bytes]:
        """Give a request to one member of each group; return the ids of those that got it."""
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
        return taken

    # --- serving -----------------------------------------------------------------------------------

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """Receive events for ``topic``; in force on the server when it returns, unless there is no connection."""
        if topic.startswith("op:"):
            # Without a group each link gets everything: it is a group of its own.
            item = _Registration(self, self._keys.operation(topic), f"link {self._id}" if group is None else group)
        elif group is None:
            item = _Registration(self, self._keys.channel(topic), None)
        else:
            raise TransportError(f'"{topic}": a group needs an address "op:…"')
        if self._closed:
            raise LinkDownError("the link is closed")
        self._served[item] = None
        if not self._is_up:
            return item  # registered with all others when the connection is back
        try:
            await self._register(item)
        except LOST as error:
            if self._is_up:
                self._served.pop(item, None)
                raise TransportError(f'"{topic}" is not registered: {error}') from error
        return item

    async def _serve(self) -> None:
        """Become one of the links that serve: with a stream, a reader, and signs of life."""
        if self._requests is not None:
            await self._requests.ready
            return
        self._requests = requests = Requests(self._stream, self._request, self._lost)
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
        """Stop serving an address."""
        if item not in self._served:
            return
        del self._served[item]
        if not self._is_up:
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
        """Stop serving all addresses; return when requests that the link was given are delivered."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self.unregister(item) for item in list(self._served)))
                if self._is_up and self._commands is not None:
                    if self._requests is not None:
                        last = await self._commands.ask(pack("XREVRANGE", self._stream, "+", "-", "COUNT", 1))
                        if last:
                            await self._requests.seen(last[0][0].decode())
                    await self._commands.flushed()
        except TimeoutError:
            raise TransportError(f"draining took longer than {timeout} s") from None
        except LOST as error:
            raise TransportError(f"draining: {error}") from error

    async def close(self) -> None:
        """Write what is buffered, hand over what is unfinished, disconnect; idempotent.

        Who is cancelled meanwhile waits no longer; the link is closed all the same.
        """
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._reconnecting is not None:
            await stop(self._reconnecting)
        if self._is_up and self._commands is not None:
            try:
                async with asyncio.timeout(self._config.connect_timeout):
                    if self._requests is not None:
                        await self._burial.bury(self._commands, self._id, "")
                    await self._commands.flushed()
            except (*LOST, TimeoutError) as error:
                logger.debug("closing: %r", error)
        self._is_up = False
        self._served.clear()
        await self._disconnect()

    # --- signs of life -----------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Notice a dead connection; if the link serves, give signs of life and bury dead links."""
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
                    raise ConnectionError("this link was considered dead, or its stream is gone")
                for link in dead:
                    await self._burial.bury(self._commands, link.decode(), str(self._lease_ms))
                await asyncio.sleep(min(BEAT, lease / 3))
        except LOST as error:
            self._lost(error)


class _Registration:
    """An address that a link serves: by group on its stream, or without one on a channel."""

    def __init__(self, link: RedisLink, name: str, group: str | None) -> None:
        self._link = link
        self.name = name
        self.group = group

    async def unregister(self) -> None:
        """Stop serving it; idempotent."""
        await self._link.unregister(self)
