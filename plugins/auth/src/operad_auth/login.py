"""The interface of a login, which a source returns and `operad login` uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Tell = Callable[[str], None]
"""Shows a line to the user who logs in."""
OpenURL = Callable[[str], Any]
"""Opens a URL in the user's browser. Its result is ignored. It may block: it runs in a thread."""


class Login(Protocol):
    """How to log in to a service and out of it; `operad.auth.OAuthClient` is one."""

    async def login(self, *, tell: Tell, open_url: OpenURL | None, timeout: float) -> str:
        """Log in and keep the token; return a sentence that says where it is kept.

        Args:
            tell: shows a line to the user.
            open_url: opens a URL in the user's browser; ``None`` if there is no browser on this machine.
            timeout: how long to wait for the user, in seconds.
        """
        ...

    async def logout(self) -> str:
        """Forget the token; return a sentence that says what was done."""
        ...
