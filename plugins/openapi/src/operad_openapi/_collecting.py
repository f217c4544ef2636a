"""Pause Python's cyclic garbage collector while a large document is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def building() -> Iterator[None]:
    """Pause Python's garbage collector while a large, long-lived structure is built. The block must not await.

    The collector would scan a growing number of live objects again and again, which for a large document takes
    longer than everything else. Afterwards the new objects are in the oldest generation, which is rarely scanned.
    A collector that is off stays off, so of nested blocks only the outermost one starts it again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            gc.freeze()  # two lists change hands; nothing is looked at
            gc.unfreeze()
        else:  # the application keeps what it froze, Python 3.12 what it began with
            gc.collect(1)
        gc.enable()
