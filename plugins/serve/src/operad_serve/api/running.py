"""Serving alone, on an address of its own; with others on one address, the command ``operad serve`` does it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from operad import ConfigError, OperationRegistry
from operad_auth import is_loopback
from operad_serve.api.application import DRAIN_TIMEOUT, OpenAPIApplication
from operad_serve.api.options import OpenAPIServerConfig


async def serve(registry: OperationRegistry, config: OpenAPIServerConfig) -> None:
    """Serve until cancelled, then drain.

    Raises:
        ConfigError: the address cannot be had, or is no loopback address although nobody is authenticated.
    """
    import uvicorn

    class _Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals are the application's own affair: it drains before it stops listening

    application = OpenAPIApplication(registry, config)
    with listening(config.host, config.port, is_guarded=config.authenticate is not None) as bound:
        settings = uvicorn.Config(
            application,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        server = _Server(settings)
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
        try:
            await asyncio.shield(task)
        finally:
            await application.drain(DRAIN_TIMEOUT)
            server.should_exit = True
            await task


@contextmanager
def listening(host: str, port: int, *, is_guarded: bool) -> Iterator[socket.socket]:
    """A socket that is bound to an address. Raises `ConfigError`."""
    if not is_guarded and not is_loopback((host,)):
        raise ConfigError(
            f"{host} is reachable from other machines, and nobody is asked who calls: give an authenticator, "
            "or listen on 127.0.0.1"
        )
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, number)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}; choose another address") from None
    try:
        yield bound
    finally:
        bound.close()
