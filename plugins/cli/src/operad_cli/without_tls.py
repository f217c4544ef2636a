"""asyncio without TLS, until somebody uses it.

A call of a function of one's own needs neither OpenSSL nor what asyncio has for it, and importing them takes half
as long as Python takes to start.

In the place of both stand modules that import the real one when something of theirs is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_NAMES = ("ssl", "asyncio.sslproto")


class _Deferred(ModuleType):
    """Stands for a module that is imported when one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        step_aside(self)
        return getattr(import_module(self.__name__), name)


def step_aside(stand_in: ModuleType) -> None:
    """Have the next import of its name import the real module."""
    if sys.modules.get(stand_in.__name__) is stand_in:
        del sys.modules[stand_in.__name__]


def import_asyncio() -> None:
    """Import asyncio so; where one of the three is there already, nothing is done."""
    if any(name in sys.modules for name in ("asyncio", *_NAMES)):
        return
    deferred = [_Deferred(name) for name in _NAMES]
    sys.modules.update((module.__name__, module) for module in deferred)
    try:
        vars(import_module("asyncio")).setdefault("sslproto", deferred[1])  # as the import of it would do
    finally:
        for module in deferred:
            step_aside(module)
