"""Warnings about peers, limited in number and length. A peer cannot forge log lines with its text."""

from __future__ import annotations

import logging
import time

from operad.words import printable
from operad_calls.requests import remember

_LONGEST = 200
_BURST, _A_SECOND = 20, 1.0
"""The number of lines that one peer may cause in a burst, and how many more per second."""
_ALL_BURST, _ALL_A_SECOND = 200, 10.0
"""The limits for all peers together: lines in a burst, and per second."""
_REMEMBERED = 1_000


class Allowance:
    """A rate limit for log lines (a token bucket).

    Args:
        burst: the number of lines that may be written in a burst.
        a_second: the number of further lines per second.
    """

    def __init__(self, burst: float, a_second: float) -> None:
        self._burst = self._left = burst
        self._a_second = a_second
        self._at = time.monotonic()
        self.kept = 0
        """The number of lines that were left out since the last line."""

    def take(self) -> bool:
        """Return True if a line may be written now; otherwise add 1 to ``kept`` and return False."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            self.kept += 1
            return False
        self._left -= 1
        return True


class Reports:
    """A log of a limited number of warnings per peer. A line states how many were left out before it."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.count = 0
        """The number of refused frames and connections, logged or not."""
        self._all = Allowance(_ALL_BURST, _ALL_A_SECOND)
        self._each: dict[str, Allowance] = {}

    def refuse(self, account: str, line: str) -> None:
        """Add 1 to ``count`` for a refused frame or connection, and log a warning; see `warn`."""
        self.count += 1
        self.warn(account, line)

    def warn(self, account: str, line: str) -> None:
        """Log a warning about a peer, unless the limit of the peer or of all peers is reached.

        Args:
            account: the name of the peer whose limit applies.
            line: the text. It may quote the peer: it is escaped, and cut after 400 characters.
        """
        allowance = self._each.pop(account, None) or Allowance(_BURST, _A_SECOND)
        remember(self._each, account, allowance, _REMEMBERED)  # now the last one to be forgotten
        if not allowance.take():
            return
        if not self._all.take():
            allowance.kept += 1
            return
        more = f" (and {allowance.kept} more like it)" if allowance.kept else ""
        allowance.kept = 0
        self._logger.warning("%s%s", printable(line, 2 * _LONGEST), more)
