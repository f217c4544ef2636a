"""Addresses to listen on, and the uvicorn server that runs on them.

uvicorn gets no signal handlers, because running calls must be drained before it ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs

from operad import ConfigError
from operad_auth import is_loopback
from operad_serve.asgi import ASGIApplication, Receive, Scope, Send
from operad_serve.unix_sockets import behind_proxy, unix_socket

Address = tuple[str, int] | Path
"""Host and port, or the file of a Unix socket."""

DRAIN_TIMEOUT = 10.0
"""The default time, in seconds, for running calls to finish on shutdown."""
KEEP_ALIVE = 5.0
"""The default time, in seconds, that a connection may stay open without a request."""
_UNIX = "unix:"
_HEAD_TIMEOUT = 30.0
"""Seconds for receiving the head of a request."""
_ACK_TIMEOUT = 90.0
"""Seconds without an acknowledgement from the client, after which its connection ends."""


def parse_address(text: str, base_dir: Path | None = None) -> Address:
    """Return the address in the text ``HOST:PORT``, ``[::1]:PORT`` or ``unix:PATH``.

    Args:
        text: the address.
        base_dir: the folder from which relative paths start; None for the current folder.

    Raises:
        ConfigError: the text has none of these forms, or the port is larger than 65535.
    """
    if text.startswith(_UNIX) and len(text) > len(_UNIX):
        return ((base_dir or Path()) / text.removeprefix(_UNIX)).absolute()
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f'expected HOST:PORT, such as 127.0.0.1:8000, or unix:PATH, got "{text}"')
    return host.strip("[]"), int(port)


@attrs.frozen
class TLSFiles:
    """The certificate and the private key for HTTPS, as files in PEM format."""

    cert: Path
    """The certificate, followed by those of its issuers."""
    key: Path | None = None
    """The private key; None if ``cert`` contains it."""

    def check(self) -> None:
        """Raise `ConfigError` if a file cannot be read, or the key is encrypted or not that of the certificate."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.cert, self.key, password=_no_password
            )
        except OSError as error:  # an SSLError is one too
            files = str(self.cert) if self.key is None else f"{self.cert} and {self.key}"
            raise ConfigError(
                f"expected a certificate and its unencrypted private key in PEM format, got {files}: "
                f"{error.strerror or error}"
            ) from None


def _no_password() -> str:
    return ""  # without it OpenSSL asks for one on the terminal


def url_of(bound: socket.socket, scheme: str = "http") -> str:
    """Return the URL of a listening socket. A Unix socket has the form of nginx, ``http://unix:/path:``."""
    if not isinstance(bound.getsockname(), tuple):
        return f"{scheme}://unix:{bound.getsockname()}:"
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextmanager
def listen(address: Address, *, is_guarded: bool) -> Iterator[socket.socket]:
    """Bind a socket to an address, yield it, and close it on exit.

    Args:
        address: host and port, or the path of a Unix socket. Port 0 is any free port.
        is_guarded: whether callers are authenticated. If not, only a loopback address or a Unix socket is allowed.

    Raises:
        ConfigError: the address cannot be used, or other machines could connect without authentication.
    """
    if isinstance(address, Path):
        with unix_socket(address, is_guarded=is_guarded) as bound:
            yield bound
        return
    host, port = address
    if not is_guarded:
        check_loopback(host)
    try:
        family, kind, number, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, number)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address") from None
    with bound:
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; RFC 5482. Accepted connections inherit it.
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_ACK_TIMEOUT * 1000))
            bound.bind(where)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error.strerror
            raise ConfigError(f"cannot listen on {host}:{port}: {reason}; choose another address") from None
        yield bound


def check_loopback(host: str) -> None:
    """Raise `ConfigError` unless a host is a loopback address, which servers without authentication require."""
    if not is_loopback((host,)):
        raise ConfigError(
            f"other machines can connect to {host}, but callers are not authenticated; configure an authenticator "
            "(--token, [[serve.tokens]], [serve.jwt] or [serve] authenticate), or listen on 127.0.0.1"
        )


@asynccontextmanager
async def serving(
    app: ASGIApplication,
    bound: socket.socket,
    *,
    proxy_headers: bool = False,
    root_path: str = "",
    keep_alive: float = KEEP_ALIVE,
    tls: TLSFiles | None = None,
    head_timeout: float = _HEAD_TIMEOUT,
) -> AsyncIterator[None]:
    """Run an application with uvicorn on a socket. On exit, open responses get a second to finish.

    Args:
        app: the ASGI application.
        bound: the bound socket.
        proxy_headers: whether to trust the headers of a proxy, see `ServeOptions`.
        root_path: the path that a proxy removes.
        keep_alive: seconds that a connection may stay open without a request.
        tls: the certificate for HTTPS; None for plain HTTP.
        head_timeout: seconds for receiving the head of a request. Slower connections are closed.
    """
    import uvicorn

    class _Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the application's own handlers drain before this server ends

    options: dict[str, Any] = {
        "interface": "asgi3",
        "lifespan": "off",
        "log_config": None,
        "log_level": "error",  # malformed requests are answered; clients must not be able to fill the log
        "access_log": False,
        "ws": "none",
        "server_header": False,
        "timeout_keep_alive": keep_alive,
    }
    if tls is not None:
        options |= {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
    is_unix = not isinstance(bound.getsockname(), tuple)
    server = _Server(
        uvicorn.Config(
            behind_proxy(app) if proxy_headers and is_unix else app,
            proxy_headers=proxy_headers and not is_unix,
            root_path=root_path,
            timeout_graceful_shutdown=1,
            http=_with_head_timeout(head_timeout),
            **options,
        )
    )
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
    try:
        while not (server.started or task.done()):  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task


class Drainable(Protocol):
    """An ASGI application that can be drained."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        ...

    async def drain(self, timeout: float) -> None:
        """Accept no new calls, end the streams, and cancel the other calls after ``timeout`` seconds."""
        ...


async def serve_alone(app: Drainable, address: Address, *, is_guarded: bool) -> None:
    """Serve one application, and no other, on an address until this call is cancelled; then drain it.

    Args:
        app: the application.
        address: the address, see `listen`.
        is_guarded: whether the application authenticates callers, see `listen`.

    Raises:
        ConfigError: the address cannot be used, or other machines could connect without authentication.
    """
    with listen(address, is_guarded=is_guarded) as bound:
        async with serving(app, bound):
            try:
                await asyncio.Event().wait()
            finally:
                await app.drain(DRAIN_TIMEOUT)


def _with_head_timeout(timeout: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol class with a time limit for the head of a request (RFC 9110, 15.5.9).

    The timer starts when a connection opens, and at the first bytes of each further request. It stops when the
    head is complete. Between a response and the next request, uvicorn's own timer runs.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class _Timed(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen by uvicorn at run time
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            timer = self._head_timer
            if self.cycle is None or self.cycle.response_complete:
                if timer is None:
                    self._wait_for_head()
            elif timer is not None:
                timer.cancel()
                self._head_timer = None

        def send_400_response(self, msg: str) -> None:
            # A body that is malformed while its request is in progress: two responses would fail, with a line in
            # the log for each request.
            if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
                super().send_400_response(msg)
            if self.cycle is not None:
                self.cycle.disconnected = True
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
            super().connection_lost(exc)

        def _wait_for_head(self) -> None:
            # A client that is this slow to ask does not read a response either.
            self._head_timer = self.loop.call_later(timeout, self.transport.abort)

    return _Timed
