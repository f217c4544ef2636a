"""Callbacks of an application, which may be coroutines or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


async def maybe_await(value: Any) -> Any:
    """What a callback returned, waited for if that is to be."""
    return await value if inspect.isawaitable(value) else value


def takes_two(callback: Callable[..., Any]) -> bool:
    """Whether a callback has a second parameter by position."""
    try:
        inspect.signature(callback).bind(None, None)
    except (TypeError, ValueError):  # no; or nothing is known of it, as of some builtins
        return False
    return True
