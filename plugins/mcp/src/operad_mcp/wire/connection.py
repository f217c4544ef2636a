"""The connection to one MCP server, which is made again after the server ended.

Everything that a connection opens is entered and left in one task, the owner. Callers send requests from their own
tasks. When a connection ends, its owner ends. The next request makes a new connection with a new owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from operad import CallError, ErrorCode, OperadError
from operad.words import in_words
from operad_mcp.config import MCPCall, MCPClientConfig, MCPExtras
from operad_mcp.errors import ConnectionLost, Fault, HTTPRefusal, ServerError, SessionExpired, classify, leaf
from operad_mcp.wire.callbacks import Callbacks
from operad_mcp.wire.calls import Calls, Clock, current_call, extras_of
from operad_mcp.wire.dialing import answer_inputs, exchange, negotiate, open_link
from operad_mcp.wire.link import imported
from operad_mcp.wire.messages import Json, error_of
from operad_mcp.wire.protocol import ServerLogger
from operad_mcp.wire.session import Progress, Session
from operad_mcp.wire.stdio import not_started
from operad_mcp.wire.watching import Watchers, listen, updates

if TYPE_CHECKING:
    import httpx2


class Connection:
    """The connection to one server. `open` or a request connects; `aclose` closes it permanently.

    Args:
        name: the name of the server in messages.
        config: the address of the server, and options.
        on_change: called with ``tools``, ``resources`` or ``prompts`` when the server reports that they changed,
            and with ``all`` after a reconnection.
        logger: the logger for diagnostics and the server's own log; the default is ``operad.mcp``.
    """

    def __init__(
        self,
        name: str,
        config: MCPClientConfig,
        on_change: Callable[[str], None] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.logger = ServerLogger(name, logger)
        self._watchers = Watchers(on_change)
        self._current: Session | None = None
        self._connecting: asyncio.Task[Session] | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._closing = False
        self._legacy = config.mode == "legacy"
        self._auth: httpx2.Auth | None = None
        self._words: Callable[[], str] = str
        self._calls = Calls(name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.changed_meanwhile = False
        """Whether the first connection also calls ``on_change``, because the operations were only remembered."""
        self._connections = 0
        self._watching = 0

    # --- connecting ----------------------------------------------------------------------------

    async def open(self) -> Session:
        """Return the current session. Connect first if necessary.

        Raises:
            CallError: ``TIMEOUT`` after ``connect_timeout``; ``UNAVAILABLE`` if the server cannot be reached, this
                connection was closed, or it belongs to another event loop; or the error of the server.
            ConfigError: a file in the configuration cannot be used.
        """
        if self._closing:
            message = f"the connection to {self._what} is closed; make a new client"
            raise CallError(ErrorCode.UNAVAILABLE, message)
        live = self._current
        if live is not None and not live.closed.is_set():
            self._same_loop()
            return live
        self._same_loop()
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _same_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise CallError(
                ErrorCode.UNAVAILABLE,
                f"{self._what} was connected in another event loop; use the registry in the loop that loaded it",
            )
        self._loop = loop

    def _connected(self, task: asyncio.Task[Session]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # there may be no caller left

    async def _connect(self) -> Session:
        try:
            live = await self._start()
        except ConnectionLost as lost:
            if self.config.command is None or self._legacy or self.config.mode != "auto":
                raise self._unavailable(lost) from lost
            # Some servers end if the first message is not initialize.
            self.logger.debug("the server ended when asked for its protocol; starting it again")
            self._legacy = True
            try:
                live = await self._start()
            except ConnectionLost as again:
                self._legacy = False
                raise self._unavailable(again) from again
        self._current = live
        self._connections += 1
        if (self._connections > 1 or self.changed_meanwhile) and self._watchers.on_change is not None:
            self._watchers.on_change("all")
        return live

    async def _start(self) -> Session:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Session] = loop.create_future()
        owner = loop.create_task(self._own(ready))
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        try:
            return await ready
        except asyncio.CancelledError:
            owner.cancel()
            raise

    async def _own(self, ready: asyncio.Future[Session]) -> None:
        """Hold a connection from its start to its end, in the owner task."""
        current_call.set(None)  # not that of the call that opened the connection
        started: list[Session] = []
        limit = self.config.connect_timeout
        try:
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(limit):
                        live = await self._enter(stack, started)
                except TimeoutError as late:
                    message = f"{self._what} ({self.config.where}): not ready within {limit:g} s (connect_timeout)"
                    raise CallError(ErrorCode.TIMEOUT, message) from late
                ready.set_result(live)
                await self._watch(live)
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(ConnectionLost("the connection was closed before it was ready"))
            raise
        except BaseException as group:  # noqa: BLE001  # handed to who waits, or logged
            error = leaf(group)
            if not ready.done():
                ready.set_exception(self._connect_error(error))
            else:
                self.logger.info("the connection ended: %r", error)
        finally:
            for session in started:
                session.end()
            self._watchers.lost()

    async def _watch(self, live: Session) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (live.closed, live.stop)]
        tasks: list[asyncio.Future[Any]] = [*waits]
        if self._watchers.on_change is not None:
            tasks.append(asyncio.ensure_future(listen(live, self.logger)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _enter(self, stack: AsyncExitStack, started: list[Session]) -> Session:
        callbacks = Callbacks(self.config, self.logger, self._calls)
        stack.push_async_callback(callbacks.end)
        if self._auth is None and self.config.auth is not None and self.config.auth.type != "bearer":
            oauth = await imported("operad_mcp.auth.oauth")
            self._auth = oauth.http_auth(self.config, self.name)
        session = Session(self.config, callbacks, self._watchers.notified, self.logger)
        started.append(session)
        self._words = str
        link = session.link = await open_link(stack, self.config, session, self.logger, self._auth)
        self._words = lambda: link.last_words
        stack.push_async_callback(session.aclose)
        self._legacy = await negotiate(session, self.config, legacy=self._legacy) or self._legacy
        if self.config.log_level is not None and "logging" in session.capabilities and not session.modern:
            await exchange(session, self._what, "logging/setLevel", {"level": self.config.log_level})
        return session

    # --- updates -------------------------------------------------------------------------------

    async def watch_resource(self, uri: str) -> AsyncGenerator[Json, None]:
        """Yield the updates of a resource, ``{uri, …}``, until the iterator is closed.

        Raises `CallError` if the connection ends, or the server offers no updates of the resource.
        """
        self._watching += 1
        try:
            async for update in self._updates(uri):
                yield update
        finally:
            self._watching -= 1

    async def _updates(self, uri: str) -> AsyncGenerator[Json, None]:
        live = await self.open()
        reason = f"{self._what}: the subscription to {uri} is lost; subscribe again"
        lost = CallError(ErrorCode.UNAVAILABLE, reason)
        if live.modern:
            try:
                async for update in updates(live, self._what, uri, lost):
                    yield update
            except Exception as error:
                raise self._final(classify(error, self._what)) from error
            return
        queue, first = self._watchers.add(uri)
        try:
            if first:
                await self.request("resources/subscribe", {"uri": uri}, safe=True)
            while (event := await queue.get()) is not None:
                yield event
            raise lost
        finally:
            if self._watchers.remove(uri, queue) and not live.closed.is_set():
                await self.farewell("resources/unsubscribe", {"uri": uri})

    async def farewell(self, method: str, params: Json) -> None:
        """Send a request that ends a task or a subscription at the server, if connected; wait at most 2 s.

        Failures are logged and ignored.
        """
        live = self._current
        if live is None or live.closed.is_set() or self._closing:
            return
        try:
            async with asyncio.timeout(2):
                await exchange(live, self._what, method, params)
        except Exception as error:  # noqa: BLE001  # it is over either way
            self.logger.debug("%s failed: %s", method, error)

    # --- requests --------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Json,
        *,
        safe: bool = False,
        timeout: float | None = None,
        progress: Progress | None = None,
        call: MCPCall | None = None,
        extras: Mapping[str, Any] | None = None,
    ) -> tuple[Any, Session]:
        """Send a request. Return the server's result unchanged, and the session on which it was received.

        Args:
            method: the name of the method in the protocol.
            params: its parameters.
            safe: whether it may be sent again if the connection ends before the response, or the server is busy. A
                request that certainly was not executed is sent again once in any case.
            timeout: the seconds until it fails; ``None``: no limit.
            progress: awaited with each progress notification.
            call: the call of an operation for which it is sent.
            extras: the metadata of the call's context, see `extras_of`.

        Raises:
            CallError: the request failed.
            ConfigError: a file in the configuration, or the metadata in ``extras``, cannot be used.
        """
        clock = Clock(timeout)
        if progress is not None and self.config.renew_timeout:
            progress = _renewing(clock, progress)
        try:
            async with clock.timeout:
                with self._calls.running(call, clock):
                    more = None if call is None else await extras_of(self.config, call, extras or {})
                    return await self._patiently(method, params, safe, progress, more)
        except TimeoutError as error:
            raise CallError(ErrorCode.TIMEOUT, f"{self._what} did not respond within {timeout:g} s") from error

    async def _patiently(
        self, method: str, params: Json, safe: bool, progress: Progress | None, extras: MCPExtras | None
    ) -> tuple[Any, Session]:
        """Send a request, and again while the server is busy, as the option ``retries`` allows."""
        attempt = 0
        while True:
            try:
                return await self._request(method, params, safe, progress, extras)
            except CallError as error:
                refused = error.__cause__
                if not isinstance(refused, HTTPRefusal):
                    raise
                wait = self.config.retries.wait(attempt, "POST", refused.status, refused.headers, repeatable=safe)
                if wait is None:
                    raise
                self.logger.debug("%s; sent again in %.1f s", refused, wait)
                attempt += 1
                call = current_call.get()
                if call is not None and call.report is not None:
                    call.report("retry", str(refused), level="warning", attempt=attempt, delay=wait)
                await asyncio.sleep(wait)

    async def _request(
        self, method: str, params: Json, safe: bool, progress: Progress | None, extras: MCPExtras | None
    ) -> tuple[Any, Session]:
        retried = False
        while True:
            live = await self.open()
            try:
                with live.used():
                    return await exchange(live, self._what, method, params, progress, extras), live
            except ConnectionLost as lost:
                if lost.whole:
                    live.closed.set()
                if retried or (lost.sent and not safe):
                    raise self._unavailable(lost) from lost
            except SessionExpired as expired:
                if self._current is live:  # otherwise another request noticed it first
                    self._current = None
                live.retire()
                if retried or (expired.ran and not safe):
                    raise self._unavailable(expired) from expired
            retried = True

    async def answers(self, live: Session, asked: Json, call: MCPCall) -> Json:
        """Return the callbacks' answers to ``inputRequests`` in ``asked``: ``{inputResponses?, requestState?}``.

        Raises `CallError` if a question cannot be answered.
        """
        token = current_call.set(call)
        try:
            return await answer_inputs(live, asked, self._what)
        finally:
            current_call.reset(token)

    def raise_said(self, said: Any) -> NoReturn:
        """Raise the `CallError` for ``said``, the JSON of an error that the server reported outside a response."""
        error = error_of(said if isinstance(said, dict) else {"message": str(said)})
        raise classify(error, self._what) from error

    # --- the end ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the connection, and the program that it started. Idempotent."""
        self._closing = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._current is not None:
            self._current.stop.set()
        owners = list(self._owners)
        if owners:
            _, late = await asyncio.wait(owners, timeout=self.config.shutdown_timeout * 4 + 1)
            for owner in late:
                owner.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def is_busy(self) -> bool:
        """Whether a request or a subscription is running."""
        return self._watching > 0 or self._calls.any_running

    @property
    def modern(self) -> bool:
        """Whether the current session uses the stateless protocol; False before the first session."""
        return self._current is not None and self._current.modern

    @property
    def server(self) -> Json:
        """The server's description of itself; empty before the first session."""
        return {} if self._current is None else self._current.server

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use; ``None`` if the server sent none, or before the first session."""
        return None if self._current is None else self._current.instructions

    # --- errors ----------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        return f'MCP server "{self.name}"'

    def _unavailable(self, error: Exception) -> CallError:
        words = self._words()
        reason = "; ".join(part for part in (str(error), words) if part)
        return CallError(ErrorCode.UNAVAILABLE, f"{self._what} ({self.config.where}): {reason}")

    def _final(self, error: Exception) -> Exception:
        return self._unavailable(error) if isinstance(error, (ConnectionLost, SessionExpired)) else error

    def _connect_error(self, error: BaseException) -> BaseException:
        if isinstance(error, ConnectionLost):
            return error
        if isinstance(error, ImportError):
            fix = "install it: pip install 'mcp>=2.3,<3'"
            text = f"{self._what} needs the package mcp, which cannot be imported: {error}; {fix}"
            return CallError(ErrorCode.UNAVAILABLE, text)
        if isinstance(error, OSError):
            return CallError(ErrorCode.UNAVAILABLE, f"{self._what}: {not_started(self.config, error)}")
        if not isinstance(error, Exception) or isinstance(error, OperadError):
            return error
        if isinstance(error, (Fault, ServerError)):
            return self._final(classify(error, f"{self._what} ({self.config.where})"))
        words = self._words()
        text = "; ".join(part for part in (in_words(error), words) if part)
        return CallError(ErrorCode.UNAVAILABLE, f"{self._what} ({self.config.where}): {text}")


def _renewing(clock: Clock, report: Progress) -> Progress:
    async def renewed(progress: float, total: float | None, message: str | None) -> None:
        clock.renew()
        await report(progress, total, message)

    return renewed
