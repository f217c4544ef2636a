"""The result pipeline turns the result of a handler into the caller's envelope; nothing else does.

It has four steps. 1. An envelope is kept. 2. Any other result becomes the data of a ``local`` envelope. 3. The
data are cast to the output schema. 4. A mismatch that remains is logged, raised or ignored. Steps 3
and 4 are skipped for an unknown schema, for an envelope of a failed call, and for an envelope of an unknown kind.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, get_args

import attrs

from operad.envelopes import EnvelopeKinds, LocalResponseMeta, ResponseEnvelope, local_envelope, with_received
from operad.errors import CallError, ErrorCode
from operad.operations import Normalize, NormalizeRule, OnMismatch, OperationSpec
from operad.records import record
from operad.usage import Usage
from operad_schema import Limits, SchemaError

logger = logging.getLogger("operad")


def _rule(value: NormalizeRule) -> NormalizeRule:
    """Return the rule; raise `ValueError` for an unknown value."""
    for word in [value] if isinstance(value, str) else value.values():
        if word not in get_args(Normalize):
            raise ValueError(f"normalize: expected one of {', '.join(get_args(Normalize))}, got {word!r:.60}")
    return value if isinstance(value, str) else dict(value)


@record
class ResultPipeline:
    """The result pipeline with the options of a registry or of one source."""

    kinds: EnvelopeKinds
    normalize: NormalizeRule = attrs.field(default="cast", converter=_rule)
    on_mismatch: OnMismatch = attrs.field(
        default="warn", validator=attrs.validators.in_(("warn", "raise", "ignore"))
    )
    limits: Limits | None = None
    """Limits for all schemas; if ``None``, each schema keeps its own limits."""
    usage: Usage | None = None
    """The counter of calls in progress of the source or registry; ``None`` if calls are not counted."""

    def within(self, spec: OperationSpec) -> OperationSpec:
        """Return the spec with `limits` in its schemas; unchanged if `limits` is ``None``."""
        if self.limits is None:
            return spec
        return attrs.evolve(
            spec,
            input_schema=spec.input_schema.limited(self.limits),
            output_schema=spec.output_schema.limited(self.limits),
        )

    def normalize_of(self, operation_id: str) -> Normalize:
        """Return the rule for an operation's data: that of the longest matching pattern, else ``cast``."""
        if isinstance(self.normalize, str):
            return self.normalize
        fitting = [pattern for pattern in self.normalize if fnmatch.fnmatchcase(operation_id, pattern)]
        return self.normalize[max(fitting, key=len)] if fitting else "cast"

    def finisher(self, spec: OperationSpec) -> Callable[[Any], ResponseEnvelope[Any]]:
        """Return a function that converts a result of the operation to an envelope in the four steps.

        With ``on_mismatch="raise"`` that function raises `CallError` ``EXECUTION_ERROR`` for data that do not
        match the output schema.
        """
        operation_id, passes = spec.id, self.kinds.passes
        normalize = self._normalizer(spec)

        def wrap(result: Any) -> ResponseEnvelope[Any]:
            if isinstance(result, ResponseEnvelope):
                passes(result)  # it warns of an unknown kind
                return result
            return ResponseEnvelope(result, LocalResponseMeta(operation_id, time_ns() // 1_000_000))

        if normalize is None:
            return wrap

        def finish(result: Any) -> ResponseEnvelope[Any]:
            if isinstance(result, ResponseEnvelope):
                if passes(result):
                    return result
                received, meta = result.data, result.meta
                data = normalize(received)
                return result if data is received else with_received(ResponseEnvelope(data, meta), received)
            data = normalize(result)
            envelope = local_envelope(data, operation_id)
            return envelope if data is result else with_received(envelope, result)

        return finish

    def _normalizer(self, spec: OperationSpec) -> Callable[[Any], Any] | None:
        """Return steps 3 and 4 for data; ``None`` if there is nothing to do."""
        schema, word = spec.output_schema, self.normalize_of(spec.id)
        if schema.is_unknown or (word == "off" and self.on_mismatch == "ignore"):
            return None
        if word == "off":
            is_valid = schema.validator

            def validate(data: Any) -> Any:
                if not is_valid(data):
                    self._mismatch(spec, schema.errors(data))
                return data

            return validate
        cast = schema.tracer(word)
        ignores = self.on_mismatch == "ignore"
        untold = {"dropped", "filled"}

        def normalize(data: Any) -> Any:
            made, clean, dropped, invented = cast(data)
            if (dropped or invented) and untold:
                _tell(spec, data, made, untold, {"dropped": dropped, "filled": invented})
            if not (clean or ignores):
                self._mismatch(spec, schema.mismatches(data, word))
            return made

        return normalize

    def _mismatch(self, spec: OperationSpec, errors: list[SchemaError]) -> None:
        text = "; ".join(error.message for error in errors[:5]) or "no reason given"
        message = f'the result of "{spec.id}" does not match its output schema: {text}'
        if self.on_mismatch == "raise":
            details = {
                "message": message,
                "errors": [
                    {"path": error.path, "message": error.message, "keyword": error.keyword} for error in errors
                ],
            }
            raise CallError(ErrorCode.EXECUTION_ERROR, message, details)
        logger.warning("%s", message, extra={"operation_id": spec.id, "paths": [e.path for e in errors]})


def _tell(spec: OperationSpec, before: Any, after: Any, untold: set[str], seen: Mapping[str, bool]) -> None:
    """Log the first value that the cast dropped from an operation's results, and the first that it filled in."""
    for action in [one for one, happened in seen.items() if happened and one in untold]:
        paths = [change.path for change in spec.output_schema.changes(before, after) if change.action == action]
        if paths:
            untold.discard(action)
            what = "drops" if action == "dropped" else "fills in"
            text = 'the cast to the output schema of "%s" %s %s (logged once; see `received` of the envelope)'
            logger.info(text, spec.id, what, ", ".join(paths[:5]) + (", …" if len(paths) > 5 else ""))
