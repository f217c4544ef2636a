"""The loopback address that receives the redirect of an authorization server (RFC 8252, 7.3)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from operad.errors import CallError, ConfigError, ErrorCode

_HOSTS = ("127.0.0.1", "localhost", "::1")
_HEAD = 16_384
_HEAD_SECONDS = 5.0
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{font:1rem/1.5 system-ui;margin:4rem auto;max-width:30rem}}</style>
<h1>{title}</h1><p>{text}</p></html>"""


class LoopbackListener:
    """An asynchronous context manager that waits on this machine for the redirect of an authorization server.

    Args:
        state: the ``state`` of the request. A redirect with another state is rejected and does not end the wait.
        redirect_uri: the URI to which the browser is sent: ``http://127.0.0.1[:port]/path``. Without a port, or
            with port 0, a free port is used (RFC 8252 requires servers to accept any port).

    Raises:
        ConfigError: ``redirect_uri`` is not on this machine, or its port cannot be used.
    """

    def __init__(self, state: str, redirect_uri: str = "http://127.0.0.1:0/callback") -> None:
        parts = urlsplit(redirect_uri)
        if parts.scheme != "http" or parts.hostname not in _HOSTS or parts.query or parts.fragment:
            raise ConfigError(f'redirect_uri: expected http://127.0.0.1:PORT/PATH, got "{redirect_uri}"')
        self._host, self._path = parts.hostname, parts.path or "/"
        self._port = parts.port or 0
        self._state = state
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        address = "::1" if self._host == "::1" else "127.0.0.1"
        try:
            self._server = await asyncio.start_server(self._serve, address, self._port, limit=_HEAD)
        except OSError as error:
            raise ConfigError(
                f"redirect_uri: cannot listen on {address}:{self._port}: {error.strerror}; use port 0"
            ) from None
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        if self._tasks:  # the page that reports success
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def redirect_uri(self) -> str:
        """The redirect URI, with the port that is in use."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{self._path}"

    async def wait(self, timeout: float = 300.0) -> dict[str, str]:
        """Return the query parameters of the first redirect with the right ``state``, also if it has an ``error``.

        Raises:
            CallError: ``TIMEOUT`` if there was no such redirect within ``timeout`` seconds.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._answer), timeout)
        except TimeoutError:
            raise CallError(
                ErrorCode.TIMEOUT, f"the user did not log in within {timeout:g} s; log in again"
            ) from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._respond(head.split(b"\r\n", 1)[0].decode("latin-1")))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # no browser, or one that left
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._tasks.discard(task)

    def _respond(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        target = rest.partition(" ")[0]
        path, _, query = target.partition("?")
        if path != self._path:
            return _page(404, "Not found", "There is no page at this address.")
        if method != "GET":
            return _page(405, "Method not allowed", "This address accepts GET only.")
        parameters = dict(parse_qsl(query, max_num_fields=50)) if query.count("&") < 50 else {}
        if not hmac.compare_digest(parameters.get("state", "").encode(), self._state.encode()):
            return _page(400, "Unexpected response", "This response belongs to no running login. Log in again.")
        if not self._answer.done():
            self._answer.set_result(parameters)
        if "error" in parameters:
            return _page(
                200,
                "Not logged in",
                "The login was refused. You can close this window; the terminal shows the reason.",
            )
        return _page(200, "Almost done", "You can close this window and go back to the terminal.")


def _page(status: int, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status} {title}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; "
        "style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
