"""Whoever sits at the terminal, as an operation reaches them: it may ask while it runs."""

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
    """Whom an operation may ask; nobody where there is no terminal."""
    return Terminal() if sys.stdin.isatty() and sys.stderr.isatty() else None


class Terminal:
    """The client of a call at the terminal, an `operad_mcp.CallClient`. One question is asked at a time."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Forms and addresses; there is no model here, and no roots."""
        return {"elicitation": {"form": {}, "url": {}}}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Nothing: observers show it."""

    async def log(self, level: str, data: Any, source: str | None) -> None:
        """Tell the logger, as a call without a client does."""
        logger.log(_LEVELS.get(level, logging.CRITICAL), "%s%s", f"{source}: " if source else "", data)

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        """Ask for what a form requires, or to visit an address; who does not want to declines."""
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
        """There is no model. Raises `CallError`."""
        _nobody("sampling")

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        """There are none. Raises `CallError`."""
        _nobody("roots")


def _nobody(capability: str) -> NoReturn:
    message = f"a terminal cannot be asked for {capability}"
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "requiredCapability": capability})


_TRACE = ("traceparent", "tracestate", "baggage")


def own_context() -> OperationContext:
    """The context of the command's call: part of the trace of whoever runs it, where the environment names one.

    Source: OpenTelemetry, "Environment Variables as Context Propagation Carriers".
    """
    given = {name: os.environ[name.upper()] for name in _TRACE if name.upper() in os.environ}
    # Whoever runs the command owns the configuration: the access check would protect nobody.
    return OperationContext(
        trusted=True, metadata=trace_context(given) if given else {}, client=client_of_terminal()
    )
