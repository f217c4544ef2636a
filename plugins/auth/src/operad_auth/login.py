"""The interface of a login, which a source returns and `operad login` uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Tell = Callable[[str], None]
"""A function that shows a line of text to the user who logs in."""
OpenURL = Callable[[str], Any]
"""A function that opens a URL in the user's browser. It runs in a thread, so it may block."""


class Login(Protocol):
    """The interface of a login to one service, such as `operad.auth.OAuthClient`."""

    async def login(self, *, tell: Tell, open_url: OpenURL | None, timeout: float) -> str:
        """Log in and keep the token. Return a sentence that states where the token is kept.

        Args:
            tell: shows a line to the user.
            open_url: opens a URL in the user's browser; ``None`` if there is no browser on this machine.
            timeout: the maximum time to wait for the user, in seconds.

        Raises:
            OperadError: the user or the service refused, the time has passed, or the token cannot be stored.
        """
        ...

    async def logout(self) -> str:
        """Delete the token. Return a sentence that states whether there was one.

        Raises `OperadError` if the token cannot be deleted.
        """
        ...
