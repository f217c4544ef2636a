"""Messages of `operad serve` for the user who started it."""

from __future__ import annotations

import logging
import sys

from operad.words import printable

logger = logging.getLogger("operad.serve")
_in_log = False


def write_to_log() -> None:
    """Write messages to the log from now on, because standard error is read as lines of JSON."""
    global _in_log  # there is one standard error
    _in_log = True
    logger.setLevel(logging.INFO)


def report(line: object) -> None:
    """Write a line to standard error, or to the log after `write_to_log`. MCP may use standard output."""
    text = printable(str(line), 4_000)
    if _in_log:
        logger.info("%s", text.strip())
        return
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
