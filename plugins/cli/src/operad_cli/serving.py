"""Serving to other processes: ``operad serve`` and ``operad hub``."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from urllib.parse import urlsplit, urlunsplit

from operad import ConfigError, OperationRegistry, PluginError
from operad.plugin import Transport
from operad_cli import render


@contextmanager
def until_stopped() -> Iterator[asyncio.Event]:
    """An event that an interrupt or a termination signal sets, so that what is served can be drained."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def without_password(url: str) -> str:
    """The URL as it may be printed: no user, password, query or fragment, where secrets stand."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_same_place(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.port) == (second.scheme, second.hostname, second.port)


def transport_of(registry: OperationRegistry, url: str | None) -> tuple[Transport, str]:
    """The transport of a URL, or of ``[transport]``, and its URL. Raises `ConfigError` if there is none."""
    options = dict(registry.transport_options)
    configured = options.pop("url", None)
    if url is None and configured is None:
        raise ConfigError(
            'no transport: name one (--transport ws://127.0.0.1:8765), or write [transport] url = "…"'
        )
    if url is None:
        url = str(configured)
    elif configured is not None and options and not is_same_place(url, configured):
        # A token that was meant for one hub must not reach another one.
        kept = ", ".join(sorted(options))
        render.error_console().print(
            f"warning: [transport] is for {without_password(configured)}; its {kept} is not used", markup=False
        )
        options = {}
    return registry.plugins.transport(url, **options), url


async def hub(host: str, port: int) -> int:
    """Run a WebSocket hub until a signal comes."""
    try:
        from operad_websocket import Hub
    except ImportError:
        raise PluginError("the hub needs operad-websocket; install it: pip install operad-websocket") from None
    try:
        offered = Hub(host=host, port=port)
    except ConfigError as error:
        raise ConfigError(f"{error} That takes Python: see operad_websocket.Hub.") from None
    with until_stopped() as stopped:
        async with AsyncExitStack() as stack:
            try:
                running = await stack.enter_async_context(offered)
            except OSError as error:
                # asyncio's own text repeats the address, in each version of Python another way
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
                raise ConfigError(
                    f"the hub cannot listen on {host}:{port}: {reason}; name another address: --listen HOST:PORT"
                ) from None
            render.error_console().print(f"hub on {running.url}; Ctrl-C ends it")
            await stopped.wait()
    return 0
