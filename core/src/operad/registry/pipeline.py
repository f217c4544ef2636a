"""The result pipeline: what a handler returned becomes the envelope that the caller gets. The only place.

1. detect: an envelope passes; 2. wrap: anything else becomes a ``local`` envelope; 3. normalise: the data are
cast to the output schema; 4. validate: what still does not match is logged (or raised, or ignored). Steps 3
and 4 are skipped for an unknown schema, for an envelope that stands for a failed call, and for one whose kind
nobody here declares.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import attrs

from operad.envelopes import EnvelopeKinds, ResponseEnvelope, local_envelope
from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec
from operad.schemas.schema import SchemaError

logger = logging.getLogger("operad")

Normalize = Literal["cast", "off"]
"""Whether data are cast to the output schema."""
OnMismatch = Literal["warn", "raise", "ignore"]
"""What happens when data do not match the output schema."""


@attrs.frozen
class ResultPipeline:
    """The four steps, with the switches of a registry or of one source."""

    kinds: EnvelopeKinds
    normalize: Normalize = attrs.field(default="cast", validator=attrs.validators.in_(("cast", "off")))
    on_mismatch: OnMismatch = attrs.field(
        default="warn", validator=attrs.validators.in_(("warn", "raise", "ignore"))
    )

    def apply(self, result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
        """The envelope of one result; see `finisher`."""
        return self.finisher(spec)(result)

    def finisher(self, spec: OperationSpec) -> Callable[[Any], ResponseEnvelope[Any]]:
        """The four steps for one operation: result -> envelope.

        With ``on_mismatch="raise"`` the function raises `CallError` ``EXECUTION_ERROR`` for data that do not
        match.
        """
        operation_id, passes = spec.id, self.kinds.passes
        normalize = self._normalizer(spec)

        def finish(result: Any) -> ResponseEnvelope[Any]:
            if isinstance(result, ResponseEnvelope):
                if passes(result) or normalize is None:
                    return result
                data = normalize(result.data)
                return result if data is result.data else ResponseEnvelope(data, result.meta)
            return local_envelope(result if normalize is None else normalize(result), operation_id)

        return finish

    def _normalizer(self, spec: OperationSpec) -> Callable[[Any], Any] | None:
        """Steps 3 and 4 for data; ``None`` where there is nothing to do."""
        schema = spec.output_schema
        if schema.is_unknown or (self.normalize == "off" and self.on_mismatch == "ignore"):
            return None
        if self.normalize == "off":
            is_valid = schema.validator

            def validate(data: Any) -> Any:
                if not is_valid(data):
                    self._mismatch(spec, schema.errors(data))
                return data

            return validate
        cast = schema.normalizer
        ignores = self.on_mismatch == "ignore"

        def normalize(data: Any) -> Any:
            made, clean = cast(data)
            if not (clean or ignores):
                self._mismatch(spec, schema.mismatches(data))
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
