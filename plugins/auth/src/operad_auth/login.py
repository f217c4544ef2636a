"""The interface of a login: what a source returns, and `operad login` uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Tell = Callable[[str], None]
"""Shows a line to the person who logs in."""
OpenURL = Callable[[str], Any]
"""Opens a URL in the person's browser; what it answers does not matter. It may block: it runs in a thread."""


class Login(Protocol):
    """How to log in at, and out of, what a source talks to; `operad.auth.OAuthClient` is one."""

    async def login(self, *, tell: Tell, open_url: OpenURL | None, timeout: float) -> str:
        """Log in, and keep what it brings; the answer says where, in words.

        Args:
            tell: shows a line to the person.
            open_url: opens a URL in their browser; ``None``: there is none here.
            timeout: how long to wait for the person, in seconds.
        """
        ...

    async def logout(self) -> str:
        """Forget it; the answer says what was done, in words."""
        ...
