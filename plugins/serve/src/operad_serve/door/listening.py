"""Addresses to listen on, and uvicorn on them, without its signal handlers: a drain comes before the end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from operad import ConfigError
from operad.sources import ASGIApplication
from operad_auth import is_loopback
from operad_serve.door.unix_sockets import behind_proxy, unix_socket

Address = tuple[str, int] | Path
"""Host and port, or the file of a Unix socket."""

_UNIX = "unix:"
_HEAD_TIMEOUT = 30.0
"""Seconds in which the head of a request has to come."""
_ACK_TIMEOUT = 90.0
"""Seconds after which a connection ends whose client takes nothing of what was sent to it."""


def parse_address(text: str, base_dir: Path | None = None) -> Address:
    """Host and port of ``HOST:PORT`` or ``[::1]:PORT``; or the path of ``unix:PATH``.

    Args:
        text: what was given.
        base_dir: the folder from which a path is meant; ``None``: the current one.

    Raises:
        ConfigError: it is neither.
    """
    if text.startswith(_UNIX) and len(text) > len(_UNIX):
        return ((base_dir or Path()) / text.removeprefix(_UNIX)).absolute()
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f'expected HOST:PORT, such as 127.0.0.1:8000, or unix:PATH, got "{text}"')
    return host.strip("[]"), int(port)


def url_of(bound: socket.socket) -> str:
    """The URL of a listening socket; for a Unix socket as nginx writes it, ``http://unix:/path:``."""
    if not isinstance(bound.getsockname(), tuple):
        return f"http://unix:{bound.getsockname()}:"
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def listen(address: Address, *, is_guarded: bool, option: str) -> Iterator[socket.socket]:
    """A socket that is bound to an address.

    Args:
        address: host and port, of which port 0 takes a free one; or a path.
        is_guarded: whether callers are authenticated; without that, only this machine may come.
        option: what the address was given by, for messages.

    Raises:
        ConfigError: the address cannot be had, or is open to others although nobody is asked who calls.
    """
    if isinstance(address, Path):
        with unix_socket(address, is_guarded=is_guarded, option=option) as bound:
            yield bound
        return
    host, port = address
    if not is_guarded:
        check_alone(host, port, option)
    try:
        family, kind, number, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, number)
    except OSError as error:
        raise ConfigError(f"{option} {host}:{port}: {error.strerror}") from None
    with bound:
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; RFC 5482. Accepted connections inherit it.
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_ACK_TIMEOUT * 1000))
            bound.bind(where)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error.strerror
            raise ConfigError(
                f"cannot listen on {host}:{port}: {reason}; name another address: {option} HOST:PORT"
            ) from None
        yield bound


def check_alone(host: str, port: int, option: str) -> None:
    """Raise `ConfigError` for an address that others reach; nobody is asked there who calls."""
    if not is_loopback((host,)):
        raise ConfigError(
            f"{host} is reachable from other machines, and nobody is asked who calls: write [[serve.tokens]], "
            f"[serve.jwt] or [serve] authenticate, or listen on this machine only: {option} 127.0.0.1:{port}"
        )


@asynccontextmanager
async def serving(
    app: ASGIApplication,
    bound: socket.socket,
    *,
    proxy_headers: bool = False,
    root_path: str = "",
    head_timeout: float = _HEAD_TIMEOUT,
) -> AsyncIterator[None]:
    """``app`` behind uvicorn on a socket; leaving lets open answers finish for a second.

    Args:
        app: of ASGI 3.
        bound: a socket that is bound.
        proxy_headers: see `ServeOptions`.
        root_path: see `ServeOptions`.
        head_timeout: seconds in which the head of a request has to come, or its connection is closed.
    """
    import uvicorn

    class _Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the command's own handlers drain before this server ends

    options: dict[str, Any] = {
        "interface": "asgi3",
        "lifespan": "off",
        "log_config": None,
        "log_level": "error",  # what strangers send wrong is answered: the log is not theirs to fill
        "access_log": False,
        "ws": "none",
        "server_header": False,
    }
    is_unix = not isinstance(bound.getsockname(), tuple)
    server = _Server(
        uvicorn.Config(
            behind_proxy(app) if proxy_headers and is_unix else app,
            proxy_headers=proxy_headers and not is_unix,
            root_path=root_path,
            timeout_graceful_shutdown=1,
            http=_prompt_heads(head_timeout),
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


def _prompt_heads(timeout: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which itself waits for the head of a request for ever (RFC 9110, 15.5.9).

    A timer runs while a connection is open and no request is under way: from its beginning, and from the first
    bytes after an answer. Between an answer and those bytes uvicorn's own timer runs.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class _Prompt(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen by uvicorn at run time
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

        def connection_lost(self, exc: Exception | None) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
            super().connection_lost(exc)

        def _wait_for_head(self) -> None:
            # Nobody reads an answer who is that slow to ask.
            self._head_timer = self.loop.call_later(timeout, self.transport.abort)

    return _Prompt
