"""When a command has come to the point at which it waits for something."""

from __future__ import annotations

import time

import psutil

_LONG = 0.3
"""Seconds of rest that are none by chance: who wants the processor, or a disk, does not rest."""


def wait_until_at_rest(pid: int, *, children: bool = False) -> None:
    """Return when a process rests, or, with ``children``, when it has some and all of them rest."""
    end, rested = time.monotonic() + 30, 0.0
    process = psutil.Process(pid)
    while rested < _LONG:
        assert time.monotonic() < end, f"process {pid} comes to no rest"
        time.sleep(0.03)
        looked_at = process.children(recursive=True) if children else [process]
        at_rest = looked_at and all(item.status() == psutil.STATUS_SLEEPING for item in looked_at)
        rested = rested + 0.03 if at_rest else 0.0
