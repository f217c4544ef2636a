"""Addresses to listen on, and uvicorn on them, without its signal handlers: a drain comes before the end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import click

from operad import ConfigError, PluginError
from operad.auth import is_loopback
from operad.plugin import ASGIApplication

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Host and port of ``HOST:PORT`` or ``[::1]:PORT``. Raises `ConfigError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f'expected HOST:PORT, such as 127.0.0.1:8000, got "{text}"')
    return host.strip("[]"), int(port)


def address_option(_: click.Context, __: click.Parameter, value: str | None) -> Address | None:
    """The callback of a click option that takes an address."""
    try:
        return None if value is None else parse_address(value)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def url_of(bound: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def listen(address: Address, *, is_guarded: bool, option: str) -> Iterator[socket.socket]:
    """A socket that is bound to an address.

    Args:
        address: host and port; port 0 takes a free one.
        is_guarded: whether callers are authenticated; without that, only this machine may come.
        option: what the address was given by, for messages.

    Raises:
        ConfigError: the address cannot be had, or is open to others although nobody is asked who calls.
    """
    host, port = address
    if not is_guarded and not is_loopback((host,)):
        raise ConfigError(
            f"{host} is reachable from other machines, and nobody is asked who calls: write [[serve.tokens]], "
            f"[serve.jwt] or [serve] authenticate, or listen on this machine only: {option} 127.0.0.1:{port}"
        )
    try:
        family, kind, number, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, number)
    except OSError as error:
        raise ConfigError(f"{option} {host}:{port}: {error.strerror}") from None
    with bound:
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error.strerror
            raise ConfigError(
                f"cannot listen on {host}:{port}: {reason}; name another address: {option} HOST:PORT"
            ) from None
        yield bound


@asynccontextmanager
async def serving(
    app: ASGIApplication, bound: socket.socket, *, proxy_headers: bool = False, root_path: str = ""
) -> AsyncIterator[None]:
    """``app`` behind uvicorn on a socket; leaving lets open answers finish for a second. Raises `PluginError`."""
    try:
        import uvicorn
    except ImportError:
        raise PluginError("serving over HTTP needs uvicorn; install it: pip install 'operad-cli[serve]'") from None

    class _Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the command's own handlers drain before this server ends

    options: dict[str, Any] = {
        "interface": "asgi3",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "server_header": False,
    }
    server = _Server(
        uvicorn.Config(
            app,
            proxy_headers=proxy_headers,
            root_path=root_path,
            timeout_graceful_shutdown=1,
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
