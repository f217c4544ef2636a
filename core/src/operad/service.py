"""Being a service: signals that ask for a drain and then for the end, and word to the service manager."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
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

    undo = [_on_signal(loop, number, stop) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield stopped
    except asyncio.CancelledError:
        if not again or task.uncancel():
            raise
        raise OperadError("a second signal ended it before what was under way was finished") from None
    finally:
        for handled in undo:
            handled()


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, stop: Callable[[], None]) -> Callable[[], None]:
    """Call ``stop`` in the event loop when a signal comes; what is answered puts back what was there before."""
    before = signal.getsignal(number)
    try:
        loop.add_signal_handler(number, stop)
        is_loops = True
    except NotImplementedError:  # loops on Windows have none, Python itself has
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
        is_loops = False

    def undo() -> None:
        if is_loops:
            loop.remove_signal_handler(number)  # leaves the default behind, whatever was there
        if before is not None:  # else it was not put there by Python, which cannot put it back
            signal.signal(number, before)

    return undo


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
