"""Log lines about peers: limited in number and length, and safe against forged lines."""

from __future__ import annotations

import logging
import time

from operad.words import printable
from operad_calls.requests import remember

_LONGEST = 200
_BURST, _A_SECOND = 20, 1.0
"""How many lines one peer may cause at once, and how many more each second."""
_ALL_BURST, _ALL_A_SECOND = 200, 10.0
"""The same for all peers together."""
_REMEMBERED = 1_000


class Allowance:
    """A bucket of log lines.

    Args:
        burst: how many lines may be written at once.
        a_second: how many more lines may be written each second.
    """

    def __init__(self, burst: float, a_second: float) -> None:
        self._burst = self._left = burst
        self._a_second = a_second
        self._at = time.monotonic()
        self.kept = 0
        """Lines that were not written since the last one."""

    def take(self) -> bool:
        """Return True if one more line may be written now; otherwise count it in ``kept``."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            self.kept += 1
            return False
        self._left -= 1
        return True


class Reports:
    """Warnings about peers, limited in number; those left out are counted and reported with the next one.

    Args:
        logger: the logger for the lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.count = 0
        """How many frames and connections were refused, logged or not."""
        self._all = Allowance(_ALL_BURST, _ALL_A_SECOND)
        self._each: dict[str, Allowance] = {}

    def refuse(self, account: str, line: str) -> None:
        """Count a refused frame or connection, and warn."""
        self.count += 1
        self.warn(account, line)

    def warn(self, account: str, line: str) -> None:
        """Warn about a peer.

        Args:
            account: the peer whose limit the line counts against.
            line: the text; it may quote the peer.
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
