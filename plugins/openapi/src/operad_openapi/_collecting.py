"""Pause Python's cyclic garbage collector while a large document is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def building() -> Iterator[None]:
    """Let Python's cyclic collector wait while a large structure that stays is made; nothing is awaited meanwhile.

    It would pass again and again over a growing number of live objects: for a large document that takes longer
    than all the rest. New objects count as old afterwards, so that they are not passed over at once. Only
    the caller that found the collector running starts it again.
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
