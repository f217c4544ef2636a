"""Helpers of programs that run as a service: signals that start a drain, messages for the service manager."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from operad import OperadError


@contextmanager
def until_stopped() -> Iterator[asyncio.Event]:
    """Yield an event that SIGINT or SIGTERM sets, so that the program can drain.

    A second signal ends a drain that takes too long: it cancels the task that entered the context.

    Raises:
        OperadError: a second signal was received.
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
        raise OperadError("a second signal ended the process before the running calls had finished") from None
    finally:
        for handled in undo:
            handled()


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, stop: Callable[[], None]) -> Callable[[], None]:
    """Call ``stop`` in the event loop on a signal. Return a function that restores the previous handler."""
    before = signal.getsignal(number)
    try:
        loop.add_signal_handler(number, stop)
        is_loops = True
    except NotImplementedError:  # event loops on Windows cannot do it, but Python can
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
        is_loops = False

    def undo() -> None:
        if is_loops:
            loop.remove_signal_handler(number)  # installs the default handler, whatever was there before
        if before is not None:  # None: it was not installed by Python, which cannot restore it
            signal.signal(number, before)

    return undo


def tell_manager(state: str) -> None:
    """Send a state to the service manager, such as systemd, at the socket ``NOTIFY_SOCKET`` (sd_notify(3)).

    Do nothing if the variable is not set. Errors are ignored.

    Args:
        state: ``READY=1`` when clients can connect, ``STOPPING=1`` when a drain begins.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.sendto(state.encode(), address)
