"""Being a service: signals that ask for a drain and then for the end, and word to the service manager."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from operad.errors import OperadError


@contextmanager
def until_stopped() -> Iterator[asyncio.Event]:
    """An event that SIGINT or SIGTERM sets, so that what is served can be drained.

    A second one ends what the current task does within the context: a drain that takes too long is over.

    Raises:
        OperadError: a second signal came.
    """
    stopped, loop, task = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    again = False

    def stop() -> None:
        nonlocal again
        if stopped.is_set() and not again:
            again = True
            task.cancel()
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    except asyncio.CancelledError:
        if not again or task.uncancel():
            raise
        raise OperadError("a second signal ended it before what was under way was finished") from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def tell_manager(state: str) -> None:
    """Tell the service manager, if there is one, by systemd's protocol (sd_notify(3)).

    Args:
        state: ``READY=1`` when what is served can be reached, ``STOPPING=1`` when a drain begins.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.sendto(state.encode(), address)
