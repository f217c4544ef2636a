"""The result pipeline: what a handler returned becomes the envelope that the caller gets. The only place.

1. detect: an envelope passes; 2. wrap: anything else becomes a ``local`` envelope; 3. normalise: the data are
cast to the output schema; 4. validate: what still does not match is logged (or raised, or ignored). Steps 3
and 4 are skipped for an unknown schema and for an envelope that stands for a failed call.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import attrs

from operad.envelopes import EnvelopeKinds, ResponseEnvelope, local_envelope
from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec

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
        """The envelope of a handler's result.

        Raises:
            CallError: ``EXECUTION_ERROR`` for an envelope of a source that nobody registered, or, with
                ``on_mismatch="raise"``, for data that do not match.
        """
        schema = spec.output_schema
        if isinstance(result, ResponseEnvelope):
            if self.kinds.is_error(result) or schema.is_unknown:
                return result
            envelope = result
        else:
            envelope = local_envelope(result, spec.id)
            if schema.is_unknown:
                return envelope
        data = envelope.data
        if self.normalize == "cast":
            cast, matches = schema.normalizer(data)
            if cast is not data:
                envelope = ResponseEnvelope(cast, envelope.meta)
        else:
            matches = schema.is_valid(data)
        if not matches and self.on_mismatch != "ignore":
            self._mismatch(spec, data)
        return envelope

    def _mismatch(self, spec: OperationSpec, data: Any) -> None:
        schema = spec.output_schema
        errors = schema.mismatches(data) if self.normalize == "cast" else schema.errors(data)
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
