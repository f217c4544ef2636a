"""A connection to one MCP server, which survives the server's ends.

Everything that the SDK opens is entered and left in one task, the owner, because cancel scopes must not cross
tasks. Callers send requests from their own tasks: what the SDK opens for a request it closes in the same task.
When a connection ends its owner ends; the next request makes a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs

from operad import CallError, ErrorCode, OperadError
from operad_mcp._errors import ConnectionLost, SessionExpired, classify, leaf
from operad_mcp.config import MCPClientConfig

if TYPE_CHECKING:
    import httpx2
    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import ProgressFnT

    from operad_mcp._stdio import ServerProcess

Json = dict[str, Any]
MODERN = "2026-07-28"
_MAX_ROUNDS = 10
_EVENTS_KEPT = 1024


@attrs.frozen(eq=False)
class Live:
    """A connection that is up."""

    session: ClientSession
    closed: asyncio.Event
    stop: asyncio.Event
    protocol_version: str
    server: Json
    capabilities: Json
    instructions: str | None

    @property
    def modern(self) -> bool:
        """Whether it speaks the stateless protocol."""
        return self.protocol_version >= MODERN


class Connection:
    """One server. `open` connects; `aclose` ends it for good.

    Args:
        name: what to call the server in messages.
        config: how to reach it.
        on_change: called with ``tools``, ``resources`` or ``prompts`` when the server says that they changed, and
            with ``all`` after a reconnection.
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
        self.logger = logger or logging.getLogger(f"operad.mcp.{name}")
        self._on_change = on_change
        self._current: Live | None = None
        self._connecting: asyncio.Task[Live] | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._closing = False
        self._legacy = config.mode == "legacy"
        self._auth: httpx2.Auth | None = None
        self._process: ServerProcess | None = None
        self._connections = 0
        self._watchers: dict[str, set[asyncio.Queue[Json | None]]] = {}

    # --- connecting ----------------------------------------------------------------------------

    async def open(self) -> Live:
        """The connection, made if there is none.

        Raises:
            CallError: ``UNAVAILABLE`` (or what the server's refusal stands for), or ``TIMEOUT``.
        """
        if self._closing:
            raise CallError(ErrorCode.UNAVAILABLE, f'the connection to MCP server "{self.name}" is closed')
        live = self._current
        if live is not None and not live.closed.is_set():
            return live
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _connected(self, task: asyncio.Task[Live]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # the callers may all have left

    async def _connect(self) -> Live:
        try:
            live = await self._start()
        except ConnectionLost as lost:
            if self.config.command is None or self._legacy or self.config.mode != "auto":
                raise self._unavailable(lost) from lost
            # Some servers end at a first message that is no initialize.
            self.logger.debug("the server ended when asked for its protocol; starting it again")
            self._legacy = True
            try:
                live = await self._start()
            except ConnectionLost as again:
                self._legacy = False
                raise self._unavailable(again) from again
        self._current = live
        self._connections += 1
        if self._connections > 1 and self._on_change is not None:
            self._on_change("all")
        return live

    async def _start(self) -> Live:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Live] = loop.create_future()
        owner = loop.create_task(self._own(ready))
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        try:
            return await ready
        except asyncio.CancelledError:
            owner.cancel()
            raise

    async def _own(self, ready: asyncio.Future[Live]) -> None:
        """The owner task: the whole life of a connection."""
        closed = asyncio.Event()
        limit = self.config.connect_timeout
        try:
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(limit):
                        live = await self._enter(stack, closed)
                except TimeoutError as late:
                    raise CallError(ErrorCode.TIMEOUT, f"{self._what}: not ready within {limit:g} s") from late
                ready.set_result(live)
                await self._watch(live)
        except asyncio.CancelledError:
            if not ready.done():  # a cancel scope of the SDK, not a caller, ended the attempt
                ready.set_exception(ConnectionLost("the connection ended while it was made"))
            raise
        except BaseException as group:  # noqa: BLE001  # handed to who waits, or logged
            error = leaf(group)
            if not ready.done():
                ready.set_exception(self._connect_error(error))
            else:
                self.logger.info("the connection to MCP server %s ended: %r", self.name, error)
        finally:
            closed.set()
            for queues in self._watchers.values():
                for queue in queues:
                    _put(queue, None)

    async def _watch(self, live: Live) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (live.closed, live.stop)]
        listener = asyncio.ensure_future(self._listen(live))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*waits, listener):
                task.cancel()
            await asyncio.gather(*waits, listener, return_exceptions=True)

    async def _enter(self, stack: AsyncExitStack, closed: asyncio.Event) -> Live:
        import importlib

        # The first import of the SDK costs 400 ms, in which other servers and calls can go on.
        await asyncio.to_thread(importlib.import_module, "mcp.client")
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp_types import Implementation

        from operad_mcp._callbacks import Callbacks
        from operad_mcp._raw import RawDispatcher

        read, write = await stack.enter_async_context(await self._streams())
        callbacks = Callbacks(self.config, self.logger, self._notified)
        inner: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write, on_stream_exception=callbacks.stream_error)
        session = await stack.enter_async_context(
            ClientSession(
                dispatcher=RawDispatcher(inner, closed),
                client_info=Implementation(name="operad", version=_version()),
                log_level=self.config.log_level,
                **callbacks.for_session(),
            )
        )
        await self._negotiate(session)
        version = session.protocol_version
        assert version is not None
        found: Any = session.server_capabilities
        info = session.server_info
        live = Live(
            session,
            closed,
            asyncio.Event(),
            version,
            {} if info is None else info.model_dump(mode="json", by_alias=True, exclude_none=True),
            {} if found is None else found.model_dump(mode="json", by_alias=True, exclude_none=True),
            session.instructions,
        )
        if self.config.log_level is not None and "logging" in live.capabilities and not live.modern:
            await self._send(live, "logging/setLevel", {"level": self.config.log_level}, None)
        return live

    async def _streams(self) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        if self.config.command is not None:
            return self._program()
        if self.config.url is not None:
            from operad_mcp._http import http_streams
            from operad_mcp._oauth import http_auth

            if self._auth is None:
                self._auth = await http_auth(self.config, self.name)
            return http_streams(self.config, self._auth)
        return _memory_streams(self.config.server)

    @asynccontextmanager
    async def _program(self) -> AsyncIterator[tuple[Any, Any]]:
        from operad_mcp._stdio import stdio_streams

        async with stdio_streams(self.config, self.logger) as streams:
            self._process = streams[0]
            yield streams

    async def _negotiate(self, session: ClientSession) -> None:
        """Find the protocol: ask (2026-07-28), and shake hands with who does not know the question."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
        from pydantic import ValidationError

        from operad_mcp._errors import CONNECTION_CLOSED, UNREACHABLE

        refusal: Exception | None = None
        if not self._legacy:
            try:
                async with asyncio.timeout(self._discover_timeout()):
                    await session.discover()
                    return
            except MCPError as refused:
                if refused.code in (CONNECTION_CLOSED, UNREACHABLE):
                    raise
                refusal = refused
            except (ValidationError, RuntimeError, TimeoutError) as unclear:
                refusal = unclear
            if self.config.mode == MODERN:
                raise refusal
        try:
            await session.initialize()
        except MCPError as error:
            # A server that was slow to answer the question has settled on the new protocol meanwhile.
            if error.code != UNSUPPORTED_PROTOCOL_VERSION or self._legacy:
                raise
            await session.discover()
            return
        self._legacy = self.config.mode != MODERN  # remembered for the next connection

    def _discover_timeout(self) -> float | None:
        """No limit of its own where there is no other protocol to try, or where a user may have to log in."""
        auth = self.config.auth
        patient = self.config.mode == MODERN or (auth is not None and auth.type != "bearer")
        return None if patient else self.config.discover_timeout

    # --- what the server says by itself ----------------------------------------------------------

    async def _listen(self, live: Live) -> None:
        """In the stateless protocol changes come only to who listens."""
        wanted = {
            f"{kind}_list_changed": True
            for kind in ("tools", "resources", "prompts")
            if live.capabilities.get(kind, {}).get("listChanged")
        }
        if not live.modern or not wanted or self._on_change is None:
            return
        from mcp.client.subscriptions import SubscriptionLost, listen
        from mcp.shared.exceptions import MCPError

        pause = 0.1
        while not live.closed.is_set():
            try:
                async with listen(live.session, **wanted) as events:  # type: ignore[arg-type]  # bools by name
                    pause = 0.1
                    async for _ in events:
                        pass  # each comes to `_notified` as well
            except (MCPError, SubscriptionLost, OSError) as error:
                self.logger.debug("listening for changes ended: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification of the server."""
        if method.endswith("/list_changed"):
            if self._on_change is not None:
                self._on_change(method.split("/")[1])
        elif method == "notifications/resources/updated":
            for queue in self._watchers.get(str(params.get("uri")), ()):
                _put(queue, dict(params))

    async def watch_resource(self, uri: str) -> AsyncGenerator[Json, None]:
        """The updates of a resource, until the iterator is closed. Raises `CallError` if the connection ends."""
        live = await self.open()
        lost = CallError(ErrorCode.UNAVAILABLE, f"{self._what}: the subscription to {uri} is lost")
        if live.modern:
            async for update in self._watch_modern(live, uri, lost):
                yield update
            return
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        watchers = self._watchers.setdefault(uri, set())
        watchers.add(queue)
        try:
            if len(watchers) == 1:
                await self.request("resources/subscribe", {"uri": uri}, safe=True)
            while (event := await queue.get()) is not None:
                yield event
            raise lost
        finally:
            watchers.discard(queue)
            if not watchers:
                self._watchers.pop(uri, None)
                if not live.closed.is_set() and not self._closing:
                    await self._unsubscribe(live, uri)

    async def _unsubscribe(self, live: Live, uri: str) -> None:
        try:
            async with asyncio.timeout(2):
                await self._send(live, "resources/unsubscribe", {"uri": uri}, None)
        except Exception as error:  # noqa: BLE001  # the subscription is over either way
            self.logger.debug("unsubscribing from %s failed: %s", uri, error)

    async def _watch_modern(self, live: Live, uri: str, lost: CallError) -> AsyncIterator[Json]:
        from mcp.client.subscriptions import SubscriptionLost, listen

        try:
            async with listen(live.session, resource_subscriptions=[uri]) as events:
                if not events.honored.resource_subscriptions:
                    message = f"{self._what} does not offer subscriptions to {uri}"
                    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
                async for event in events:
                    yield {"uri": str(getattr(event, "uri", uri))}
        except SubscriptionLost as error:
            raise lost from error
        except Exception as error:
            raise self._final(classify(error, self._what)) from error

    # --- requests --------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Json,
        *,
        safe: bool = False,
        timeout: float | None = None,
        progress: ProgressFnT | None = None,
    ) -> tuple[Any, Live]:
        """Send a request; the server's answer as it came, and the connection that it came by.

        Args:
            method: as the protocol names it.
            params: its parameters.
            safe: whether it may be sent again if the connection ends before the answer. What surely was not
                executed is sent again once in any case.
            timeout: seconds; ``None``: the caller's own deadline ends it.
            progress: awaited with each progress notification.

        Raises:
            CallError: whatever goes wrong.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._request(method, params, safe, progress)
        except TimeoutError as error:
            raise CallError(ErrorCode.TIMEOUT, f"{self._what} did not answer within {timeout:g} s") from error

    async def _request(
        self, method: str, params: Json, safe: bool, progress: ProgressFnT | None
    ) -> tuple[Any, Live]:
        retried = False
        while True:
            live = await self.open()
            try:
                return await self._send(live, method, params, progress), live
            except ConnectionLost as lost:
                # Over HTTP only this one says that the connection ended, and not just the answer.
                if self.config.url is None or str(lost) == "Connection closed":
                    live.closed.set()
                if retried or (lost.sent and not safe):
                    raise self._unavailable(lost) from lost
            except SessionExpired as expired:
                if retried:
                    raise self._unavailable(expired) from expired
                live.closed.set()
            retried = True

    async def _send(self, live: Live, method: str, params: Json, progress: ProgressFnT | None) -> Any:
        from operad_mcp._callbacks import answer_inputs

        answers: Json = {}
        for _ in range(_MAX_ROUNDS):
            raw = await self._once(live, method, {**params, **answers} if answers else params, progress)
            if not isinstance(raw, dict) or raw.get("resultType") != "input_required":
                return raw
            answers = await answer_inputs(live.session, raw, self.config, self._what)
        message = f"{self._what} asked for input {_MAX_ROUNDS} times and did not answer"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    async def _once(self, live: Live, method: str, params: Json, progress: ProgressFnT | None) -> Any:
        from operad_mcp._raw import Slot, slot
        from operad_mcp._wire import ANYTHING, request_of

        wanted = Slot()
        token = slot.set(wanted)
        try:
            if method == "tools/list":
                await self._list_tools(live, params, wanted)
            else:
                await live.session.send_request(request_of(method, params), ANYTHING, progress_callback=progress)
        except Exception as error:
            raise classify(error, self._what) from error
        finally:
            slot.reset(token)
        return wanted.raw

    async def _list_tools(self, live: Live, params: Json, wanted: Any) -> None:
        """As the session lists tools: it keeps the headers that they want, and drops what it must not call."""
        from mcp_types import PaginatedRequestParams

        cursor = params.get("cursor")
        listed = await live.session.list_tools(
            params=None if cursor is None else PaginatedRequestParams(cursor=cursor)
        )
        raw = wanted.raw
        if isinstance(raw, dict) and isinstance(raw.get("tools"), list):
            kept = {tool.name for tool in listed.tools}
            wanted.raw = {
                **raw,
                "tools": [tool for tool in raw["tools"] if isinstance(tool, dict) and tool.get("name") in kept],
            }

    async def pages(self, method: str, key: str) -> list[Any]:
        """All items of a paged listing, up to ``max_pages`` pages; a cursor that comes again ends it."""
        items: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self.config.max_pages):
            raw, _live = await self.request(
                method, {} if cursor is None else {"cursor": cursor}, safe=True, timeout=self.config.timeout
            )
            page = raw if isinstance(raw, dict) else {}
            found = page.get(key)
            items.extend(found if isinstance(found, list) else ())
            following = page.get("nextCursor")
            if not isinstance(following, str):
                return items
            if following in seen:
                self.logger.warning("%s: the listing %s goes in circles; %d items", self.name, method, len(items))
                return items
            seen.add(following)
            cursor = following
        self.logger.warning(
            "%s: the listing %s has more than max_pages = %d pages; the first %d items are taken",
            self.name, method, self.config.max_pages, len(items),
        )  # fmt: skip
        return items

    # --- the end ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the connection, and the program; idempotent."""
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

    # --- errors ----------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        return f'MCP server "{self.name}"'

    def _unavailable(self, error: Exception) -> CallError:
        words = self._process.last_words if self._process is not None else ""
        reason = "; ".join(part for part in (str(error), words) if part)
        return CallError(ErrorCode.UNAVAILABLE, f"{self._what} ({self.config.where}): {reason}")

    def _final(self, error: Exception) -> Exception:
        return self._unavailable(error) if isinstance(error, (ConnectionLost, SessionExpired)) else error

    def _connect_error(self, error: BaseException) -> BaseException:
        if isinstance(error, ImportError):
            text = f"{self._what} needs the package mcp, version 2.3 or newer and below 3: {error}"
            return CallError(ErrorCode.UNAVAILABLE, text)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            text = f"{self._what}: {self.config.where} cannot be started: {reason}"
            return CallError(ErrorCode.UNAVAILABLE, text)
        if not isinstance(error, Exception) or isinstance(error, CallError):
            return error
        from mcp.shared.exceptions import MCPError

        if isinstance(error, (MCPError, OperadError)):
            return error if isinstance(error, OperadError) else classify(error, self._what)
        words = self._process.last_words if self._process is not None else ""
        text = "; ".join(part for part in (f"{type(error).__name__}: {error}", words) if part)
        return CallError(ErrorCode.UNAVAILABLE, f"{self._what} ({self.config.where}): {text}")


def _put(queue: asyncio.Queue[Json | None], item: Json | None) -> None:
    """Queue an update, unless nobody has read for long: an update says only that something changed."""
    if item is None or queue.qsize() < _EVENTS_KEPT:
        queue.put_nowait(item)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("operad-mcp")
    except PackageNotFoundError:  # imported from a source tree
        return "0"


@asynccontextmanager
async def _memory_streams(server: Any) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams of a server object in this process."""
    from mcp.server import Server
    from mcp.shared.memory import create_client_server_memory_streams

    # `MCPServer` offers no public way to its low-level server; the SDK's own client takes this one.
    low = server if isinstance(server, Server) else server._lowlevel_server
    async with create_client_server_memory_streams() as (client, (read, write)):
        serving = asyncio.ensure_future(low.run(read, write, low.create_initialization_options()))
        try:
            yield client
        finally:
            await client[1].aclose()
            await asyncio.wait([serving], timeout=2)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
