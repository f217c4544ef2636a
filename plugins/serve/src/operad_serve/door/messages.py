"""Messages of `operad serve` for the user who started it."""

from __future__ import annotations

import logging
import sys

from operad.words import printable

logger = logging.getLogger("operad.serve")
_in_log = False


def write_to_log() -> None:
    """Let `report` write to the log instead of standard error, which another program reads as lines of JSON."""
    global _in_log  # there is one standard error
    _in_log = True
    logger.setLevel(logging.INFO)


def report(line: object) -> None:
    """Write a line, of at most 4,000 characters, to standard error; to the log if `write_to_log` was called.

    Standard output is not used, because MCP may use it. Control characters are replaced.
    """
    text = printable(str(line), 4_000)
    if _in_log:
        logger.info("%s", text.strip())
        return
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
