"""The parts that both HTTP transports share: the HTTP client, one exchange, and the reading of its response."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import httpx2

from operad.plugin import client_tls
from operad.words import in_words
from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault, HTTPRefusal, Unreadable, unusable
from operad_mcp.wire.link import Link, Sink
from operad_mcp.wire.messages import Answer, Message, RequestId, failure
from operad_mcp.wire.protocol import ServerLogger
from operad_mcp.wire.transport import Transport

_BODY_KEPT = 2_000
_HEADERS_KEPT = ("www-authenticate", "retry-after", "content-type", "location")
_READ_TIMEOUT = 24 * 3600.0
"""Seconds that a stream may be silent. A call's own deadline ends it earlier."""
_REDIRECTS = 5
_HEARD = 2.0
"""Seconds to wait until the server accepts a message without a response. Later messages may then overtake it."""
LAST_WORDS = 0.5
"""Seconds to wait for messages without a response when the connection ends."""
_TLS_FROM = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@lru_cache(maxsize=4)
def _default_tls(*_named: str | None) -> ssl.SSLContext:
    """Return the TLS context of the system or the environment.

    Reading it takes longer than connecting to a server.
    """
    return httpx2.create_ssl_context()


def http_client(config: MCPClientConfig, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    """Return a new HTTP client for a server.

    If ``config.proxy`` is ``None``, it uses the proxies of the environment (``HTTPS_PROXY``, ``NO_PROXY``, …).

    Raises:
        ConfigError: a file with a certificate or a key cannot be used.
    """
    headers = dict(config.headers)
    if config.auth is not None and config.auth.type == "bearer":
        headers["Authorization"] = f"Bearer {config.auth.token}"
    tls = client_tls(config.tls_ca, config.tls_cert, config.tls_key)
    if tls is None:
        tls = _default_tls(*map(os.environ.get, _TLS_FROM))
    return httpx2.AsyncClient(
        headers=headers,
        transport=Transport(tls, config.proxy),
        auth=auth,
        timeout=httpx2.Timeout(config.connect_timeout, read=_READ_TIMEOUT),
        follow_redirects=False,
    )


@asynccontextmanager
async def sent_within(
    client: httpx2.AsyncClient, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
) -> AsyncIterator[httpx2.Response]:
    """Yield the response to an HTTP request, with an unread body.

    At most 5 redirects are followed, only with the same method, and to the same origin or its https form.

    Raises:
        httpx2.TransportError: no response was received.
    """
    request = client.build_request(method, url, headers=headers, content=body)
    for left in reversed(range(_REDIRECTS + 1)):
        response = await client.send(request, stream=True)
        following = response.next_request
        if following is None or not left or not _within_origin(request, following):
            break
        await response.aclose()
        request = following
    try:
        yield response
    finally:
        await response.aclose()


def _within_origin(request: httpx2.Request, following: httpx2.Request) -> bool:
    """Return True if a redirect keeps the method and the origin (or its https form), and adds no credentials."""
    here, there = request.url, following.url
    if following.method != request.method or (there.userinfo and there.userinfo != here.userinfo):
        return False
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    upgraded = (here.scheme, there.scheme) == ("http", "https") and here.port is None and there.port is None
    return same or (upgraded and here.host == there.host)


_UNSENT = (
    httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError, httpx2.LocalProtocolError,
)  # fmt: skip


def unsent(error: Exception) -> bool:
    """Return True if a request that failed with ``error`` certainly did not reach the server."""
    return isinstance(error, _UNSENT)


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """Return at most ``limit`` bytes of the body, decompressed.

    Raises `httpx2.RequestError` if the body is cut off or cannot be decompressed.
    """
    pieces, size = [], 0
    async for piece in response.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size >= limit:
            break
    return b"".join(pieces)[:limit]


async def read_if_any(response: httpx2.Response, limit: int) -> bytes:
    """Return the result of `read_body`; empty if the body is cut off or cannot be decompressed."""
    try:
        return await read_body(response, limit)
    except httpx2.RequestError:
        return b""


def refusal(response: httpx2.Response, text: str) -> HTTPRefusal:
    """Return the fault for a response with an HTTP status of 300 or above, whose body is ``text``.

    A location is shown without parts that may be secret.
    """
    kept = {name: response.headers[name] for name in _HEADERS_KEPT if name in response.headers}
    if response.next_request is not None:
        there = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
        kept["location"] = str(there)
    reason = response.reason_phrase
    if "location" in kept and 300 <= response.status_code < 400:
        why = "which is not followed; use that URL if it is the server's"
        if response.next_request is not None and _within_origin(response.request, response.next_request):
            why = f"after {_REDIRECTS} others, which is the maximum; the server may redirect in circles"
        reason += f", a redirect to {kept['location']}, {why}"
    return HTTPRefusal(response.status_code, reason, kept, text[:_BODY_KEPT])


def answer_of(request_id: RequestId | None, messages: Sequence[Message]) -> Answer | None:
    """Return the response with the id ``request_id``; if it is missing, the first response, with that id.

    All messages came on the exchange of the request. Return ``None`` if they contain no response, or
    ``request_id`` is ``None``.
    """
    answers = [message for message in messages if isinstance(message, Answer)]
    if request_id is None or not answers:
        return None
    return next((each for each in answers if each.id == request_id), answers[0])._replace(id=request_id)


class Tasks:
    """A group of tasks that is ended as a whole."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a coroutine as a task of the group, and return the task. `end` cancels it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self, patience: float) -> None:
        """Wait until the running tasks are done, at most ``patience`` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)

    async def end(self) -> None:
        """Cancel the running tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HTTPLink(Link):
    """The base class of both HTTP transports."""

    def __init__(
        self, client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
    ) -> None:
        super().__init__(sink)
        assert config.url is not None
        self._client = client
        self._url = config.url
        self._limit = config.max_message_bytes
        self._logger = logger
        self._tasks = Tasks()
        self._notes = Tasks()

    async def _tell(self, method: str | None, send: Callable[[], Awaitable[None]]) -> None:
        """Send a message without a response. Wait until the server has accepted it, at most `_HEARD` seconds."""

        async def attempt() -> None:
            try:
                await send()
            except Exception as error:  # noqa: BLE001  # an authentication may raise anything
                self._logger.debug("a notification was not sent: %s", in_words(error))

        note = self._notes.start(attempt())
        if method != "notifications/cancelled":  # a cancelled caller must not wait
            await asyncio.wait([note], timeout=_HEARD)

    async def _ask(self, request_id: RequestId, ask: Callable[[], Awaitable[Answer | None]]) -> None:
        """Send a request. A failure is passed on as its response."""
        fault: Fault
        try:
            answer = await ask()
        except Fault as found:
            fault = found
        except httpx2.TransportError as error:
            fault = ConnectionLost(in_words(error), sent=not unsent(error), whole=False)
        except httpx2.DecodingError as error:
            fault = Unreadable(f"the response cannot be decoded: {error}")
        except Exception as error:  # noqa: BLE001  # an authentication may raise anything
            fault = unusable(error)
        else:
            if answer is not None:
                self.sink.receive(answer)
            return
        self.sink.receive(failure(request_id, fault))

    async def leave(self) -> None:
        """Wait up to `LAST_WORDS` seconds until pending notifications are sent, then end the transport."""
        await self._notes.settle(LAST_WORDS)
        await self._notes.end()
        await self._tasks.end()
        self.end()
