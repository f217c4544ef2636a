"""The base class of links over a broker, such as NATS or Redis."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from operad.plugin import Delivery, ErrorCode, Event, LinkDownError, OnEvent, OnLink, TransportError
from operad_calls import protocol
from operad_calls.protocol import decode
from operad_calls.reports import Reports
from operad_calls.unusable import unreadable

_LONGEST_WAIT = 2.0
"""The longest pause between two attempts to reconnect, in seconds."""


class BrokerLink(ABC):
    """A link over a broker. It reconnects after each loss, and passes on only events that a peer may send.

    A transport implements the abstract methods. It calls `lost` when a connection breaks, and `take` for each
    message.

    Args:
        on_event: receives events; see `operad.plugin.Transport.open`.
        on_link: receives "up" and "down"; see `operad.plugin.Transport.open`.
        reconnect_wait: seconds before the first attempt to reconnect. The pause doubles after each failure, up to
            2 s. Each pause is shortened at random, by up to half.
        logger: the logger for dropped messages and lost connections.
    """

    lost_errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """The exceptions that mean that the broker cannot be reached, or that the connection was lost."""

    def __init__(
        self, on_event: OnEvent, on_link: OnLink, *, reconnect_wait: float, logger: logging.Logger
    ) -> None:
        self._on_event = on_event
        self._on_link = on_link
        self._reconnect_wait = reconnect_wait
        self._logger = logger
        self.reports = Reports(logger)
        self.is_up = False
        self.is_closed = False
        self._epoch = 0
        self._broken: BaseException | None = None
        self._closing: asyncio.Task[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None

    @abstractmethod
    def host(self) -> str:
        """Return the address of the broker without credentials, for the texts of errors and of the log."""

    @abstractmethod
    async def establish(self) -> None:
        """Connect, subscribe to the inbox, and register all addresses. Raises one of `lost_errors` on failure."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Close everything that `establish` opened, also after `establish` failed."""

    @abstractmethod
    async def sign_off(self) -> None:
        """Return unfinished requests to the broker. `close` calls this, also while the connection is lost."""

    @abstractmethod
    def reply(self, to: str, event: Event) -> None:
        """Send an event in the background. Raises `TransportError` if ``to`` is not an address."""

    # --- the connection --------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect for the first time, and report "up". Raises `LinkDownError` if the broker cannot be reached."""
        try:
            await self._start()
        except BaseException as error:
            await self.disconnect()
            if not isinstance(error, self.lost_errors):
                raise
            raise LinkDownError(f"no connection to {self.host()}: {str(error) or type(error).__name__}") from error

    async def _start(self) -> None:
        self._broken = None
        await self.establish()
        if self._broken is not None:
            raise ConnectionError("the connection was lost while it was set up") from self._broken
        self._epoch += 1
        self.is_up = True
        self._on_link("up", self._epoch)

    def lost(self, error: BaseException | None) -> None:
        """Report "down" after a connection broke, and connect again. ``error`` is ``None`` if it is unknown.

        During an attempt to connect, this makes the attempt fail. A closed link ignores it.
        """
        if self.is_closed:
            return
        if not self.is_up:
            self._broken = error or ConnectionError("the connection was lost")
            return
        self._logger.debug("the connection to %s is lost: %r", self.host(), error)
        self.is_up = False
        self._on_link("down", self._epoch)
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        wait = self._reconnect_wait
        while not self.is_closed:
            try:
                await self.disconnect()
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311  # it only spreads the herd
                wait = max(wait, min(2 * wait, _LONGEST_WAIT))
                await self._start()
            except self.lost_errors as error:
                self._logger.debug("no connection to %s: %r", self.host(), error)
            except Exception:  # no error may end the link
                self._logger.exception("connecting to %s failed", self.host())
            else:
                return

    async def check_up(self) -> None:
        """Raise `LinkDownError` if the link is not connected."""
        if not self.is_up:
            await asyncio.sleep(0)  # a caller that tries again in a loop must not keep the link from reconnecting
            state = "closed; open a new link" if self.is_closed else "down; the link reconnects"
            raise LinkDownError(f"the connection to {self.host()} is {state}")

    async def close(self) -> None:
        """Sign off and disconnect, even if the caller is cancelled. Later calls only wait for the first one."""
        if self._closing is None:
            self.is_closed = True
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.wait({self._reconnecting})
        try:
            await self.sign_off()
        except self.lost_errors as error:
            self._logger.debug("signing off at %s failed: %r", self.host(), error)
        self.is_up = False
        await self.disconnect()

    # --- events in ---------------------------------------------------------------------------------------

    def take(self, data: bytes, delivery: Delivery, is_address: Callable[[Event], bool], where: str) -> None:
        """Pass the event in a message to the owner of the link, or `refuse` the message if it is not valid.

        Args:
            data: the message.
            delivery: the delivery of the message. It is acknowledged immediately unless the event is a request.
            is_address: returns True if a request arrived at the address of its operation. Brokers check
                permissions by address, so other requests are refused.
            where: the address at which the message arrived, for the log.
        """
        try:
            event = decode(data)
            if event["type"].startswith("link."):
                raise ValueError(f"a peer must not send {event['type']}, which only a link makes")
        except (ValueError, RecursionError) as error:
            self.refuse(data, delivery, error, where)
            return
        if event["type"] != protocol.REQUESTED:
            if delivery.done is not None:  # no handler works on it
                delivery.done()
        elif not is_address(event):
            why = "it arrived at the address of another operation"
            self.refuse(data, delivery, why, where, ErrorCode.ACCESS_DENIED)
            return
        self.tell(event, delivery)

    def refuse(
        self, data: bytes, delivery: Delivery, why: object, where: str, code: str = ErrorCode.SERIALIZATION_ERROR
    ) -> None:
        """Drop a message, and log ``why``. If its request id can be read, fail its call with an error ``code``."""
        self.reports.refuse("bus", f"dropped a message at {where!r}: {why}")
        if delivery.done is not None:
            delivery.done()
        found = unreadable(data, why, code)
        if found is None:
            return
        if not found.is_request:
            self.tell(found.event, Delivery())
        elif found.reply_to is not None:
            try:
                self.reply(found.reply_to, found.event)
            except (TransportError, ConnectionError) as error:  # not an address; lost meanwhile
                self._logger.debug("the sender of a dropped message cannot be reached: %s", error)

    def tell(self, event: Event, delivery: Delivery) -> bool:
        """Pass an event to the owner of the link. Return True, or log an exception of it and return False."""
        try:
            self._on_event(event, delivery)
        except Exception:  # a defect of the owner must not end the connection
            self._logger.exception("handling an event (%s) failed", event["type"])
            return False
        return True
