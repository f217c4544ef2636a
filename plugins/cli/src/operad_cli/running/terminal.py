"""The terminal as the client of a call, so that an operation can ask the user questions while it runs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from operad import CallError, ErrorCode, OperationContext, from_schema
from operad.plugin import trace_context
from operad_cli.output.progress import CLEAR
from operad_cli.output.text import printable
from operad_cli.running.inputs import ask, interruptible

logger = logging.getLogger("operad.cli")
_LEVELS = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}


def client_of_terminal() -> Terminal | None:
    """Return the client for a terminal; None if standard input or standard error is not a terminal."""
    return Terminal() if sys.stdin.isatty() and sys.stderr.isatty() else None


class Terminal:
    """An `operad_mcp.CallClient` that asks the user at the terminal, one question at a time."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of a terminal: forms and URLs, but no model and no roots."""
        return {"elicitation": {"form": {}, "url": {}}}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Do nothing. Observers show progress."""

    async def log(self, level: str, data: Any, source: str | None) -> None:
        """Log ``data`` with the logger ``operad.cli``. A level without a counterpart in Python is critical."""
        logger.log(_LEVELS.get(level, logging.CRITICAL), "%s%s", f"{source}: " if source else "", data)

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        """Ask the user to visit ``url``, or for the required fields of ``schema`` if ``url`` is ``None``.

        Return ``{"action": "accept"}``, with the fields as ``content`` if ``url`` is ``None``, or
        ``{"action": "decline"}``.
        """
        import click

        values: dict[str, Any] = {}
        sys.stderr.write(CLEAR)
        with interruptible():
            click.echo(printable(message), err=True)
            if url is not None:
                click.echo(f"Visit {printable(url)}", err=True)
            if not click.confirm("Answer?" if url is None else "Done?", default=True, err=True):
                return {"action": "decline"}
        if schema is not None:
            ask(values, from_schema(dict(schema)))
        return {"action": "accept", "content": values} if url is None else {"action": "accept"}

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        """Raise `CallError`, because a terminal has no model."""
        _not_supported("sampling")

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        """Raise `CallError`, because a terminal has no roots."""
        _not_supported("roots")


def _not_supported(capability: str) -> NoReturn:
    message = f"a terminal does not support {capability}; call the operation from a client that does"
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "requiredCapability": capability})


_TRACE = ("traceparent", "tracestate", "baggage")


def own_context() -> OperationContext:
    """Return a trusted context for the command's call, with the terminal as its client.

    It continues the trace that the environment variables ``TRACEPARENT``, ``TRACESTATE`` and ``BAGGAGE`` describe.
    Source: OpenTelemetry, "Environment Variables as Context Propagation Carriers".
    """
    given = {name: os.environ[name.upper()] for name in _TRACE if name.upper() in os.environ}
    # The user owns the configuration, so an access check would protect nothing.
    return OperationContext(
        trusted=True, metadata=trace_context(given) if given else {}, client=client_of_terminal()
    )
