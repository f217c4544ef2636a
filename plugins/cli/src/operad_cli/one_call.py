"""One call and what is shown of it: what ``operad call`` does, with no import that the call does not need."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operad import CallError, ErrorCode, OperationContext, OperationRegistry, ResponseEnvelope
from operad.plugin import trace_context
from operad_cli.asking import client_of_terminal
from operad_cli.inputs import ask, input_of, usage
from operad_cli.opening import open_registry
from operad_cli.plain import print_data, print_envelope
from operad_cli.progress import shown


class OneCall:
    """The call that a command line asks for."""

    def __init__(
        self,
        operation_id: str,
        *,
        fields: tuple[str, ...] = (),
        text: str | None = None,
        timeout: float | None = None,
        bare: bool = False,
        select: str | None = None,
        explain: bool = False,
        config: Path | None = None,
        as_json: bool = False,
        profile: str | None = None,
    ) -> None:
        self._id = operation_id
        self._fields = fields
        self._text = text
        self._timeout = timeout
        self._bare = bare
        self._select = select
        self._explain = explain
        self._config = config
        self._as_json = as_json
        self._profile = profile

    async def run(self) -> int:
        """Call, and print. The answer is the exit code."""
        async with open_registry(self._config, self._id, profile=self._profile) as registry:
            value = await read_input(registry, self._id, self._fields, self._text)
            with shown(registry):
                envelope = await registry.execute(self._id, value, own_context(), timeout=self._timeout)
            show(envelope, as_json=self._as_json, bare=self._bare, select=self._select, compact=False)
            if self._explain:
                from operad_cli.render import print_changes

                spec = registry.get_spec(self._id)
                assert spec is not None
                print_changes(spec.output_schema.cast_report(envelope.received)[1])
            return 1 if registry.plugins.envelope_kinds.is_error(envelope) else 0


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


def from_words(words: Sequence[str]) -> OneCall | None:
    """The call of ``call ID …``; ``None`` for what is not plainly that: click has the words for it."""
    known: dict[str, Any] = {"as_json": False, "bare": False, "explain": False}
    plain: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _FLAGS and not equals:
            known[_FLAGS[name]] = True
        elif name in _VALUES:
            given = value if equals else next(rest, None)
            if given is None:
                return None
            known[_VALUES[name]] = given
        elif word.startswith("-"):
            return None
        else:
            plain.append(word)
    if len(plain) < 2 or plain[0] != "call":
        return None
    try:
        timeout = float(known["timeout"]) if "timeout" in known else None
    except ValueError:
        return None
    if timeout is not None and not timeout > 0:
        return None
    known["timeout"] = timeout
    known["config"] = Path(known["config"]) if "config" in known else None
    return OneCall(plain[1], fields=tuple(plain[2:]), **known)


_FLAGS = {"--json": "as_json", "--data": "bare", "--explain": "explain"}
_VALUES = {
    "-c": "config", "--config": "config", "--profile": "profile", "--timeout": "timeout", "--select": "select",
    "-i": "text", "--input": "text",
}  # fmt: skip


async def read_input(
    registry: OperationRegistry, operation_id: str, fields: tuple[str, ...], text: str | None
) -> Any:
    """The input of the arguments; what is required and missing is asked for at a terminal."""
    # Its schema, which a peer may not have told yet, is needed for KEY=VALUE only.
    spec = registry.get_spec(operation_id) if text is not None else await registry.describe(operation_id)
    if spec is None:
        raise not_found(registry, operation_id)
    if text is None:
        values = input_of(fields, spec.input_schema)
        if sys.stdin.isatty() and sys.stderr.isatty():
            ask(values, spec.input_schema)
        return values
    if fields:
        raise usage("give the input as KEY=VALUE or as JSON, not both")
    given = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        return json.loads(given.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise usage(f"the input is not JSON: it is not UTF-8, at byte {error.start}") from error
    except RecursionError as error:
        raise usage("the input is nested too deeply") from error
    except ValueError as error:
        hint = "; --input - < FILE reads a file" if text.startswith("@") else ""
        reason = "standard input is empty" if text == "-" and not given.strip() else str(error)
        raise usage(f"the input is not JSON: {reason}{hint}") from error


def show(envelope: ResponseEnvelope[Any], *, as_json: bool, bare: bool, select: str | None, compact: bool) -> None:
    """Print an envelope, its data alone, or a part of these."""
    if select is not None:
        print_data(selected(select, envelope.to_wire()["data"]), as_json=as_json, compact=compact)
    elif bare:
        print_data(envelope.to_wire()["data"], as_json=as_json, compact=compact)
    else:
        print_envelope(envelope, as_json=as_json, compact=compact)


def not_found(registry: OperationRegistry, operation_id: str) -> CallError:
    """The error for an unknown id: with near ones, and with the sources that failed."""
    import difflib

    ids = [spec.id for spec in registry.specs()]
    message = f'operation "{operation_id}" not found'
    close = difflib.get_close_matches(operation_id, ids, n=3, cutoff=0.5)
    if close:
        message += "; did you mean " + " or ".join(f'"{name}"' for name in close) + "?"
    elif ids:
        message += f"; `operad list` shows the {len(ids)} there are"
    elif registry.configuration is not None and not registry.configuration.sources:
        message += f"; {registry.configuration.name} has no [sources], `operad init` shows how they are written"
    failures = registry.failures
    failures = [failure for failure in failures if operation_id.startswith(f"{failure.name}.")] or failures
    if len(failures) == 1:
        message += f"; source [sources.{failures[0].name}] is not loaded: {failures[0].error}"
    elif failures:
        names = ", ".join(sorted(failure.name for failure in failures))
        message += f"; these sources are not loaded, `operad list` says why: {names}"
    return CallError(ErrorCode.OPERATION_NOT_FOUND, message, {"operationId": operation_id})


def selected(expression: str, data: Any) -> Any:
    """What a JMESPath expression (jmespath.org) finds in data. Raises `click.UsageError` for one that is none."""
    import jmespath

    try:
        return jmespath.search(expression, data)
    except jmespath.exceptions.JMESPathError as error:
        raise usage(f"--select: {' '.join(str(error).split())}") from error
