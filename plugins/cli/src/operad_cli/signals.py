"""What the signals that end a process do to a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends_as_by_interrupt() -> Iterator[list[int]]:
    """Within, SIGTERM and SIGHUP end a command as Ctrl-C does, which ends what its sources started.

    Commands that serve put their own handlers in their place. What is given gets the signal that came.
    """
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    numbers: list[int] = []
    if threading.current_thread() is threading.main_thread():
        named = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        numbers = [number for number in named if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
