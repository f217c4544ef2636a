"""Definitions that must not change: what a model was told of a tool is what the tool has to stay."""

from __future__ import annotations

import json
from typing import Any

from operad import CallError, ErrorCode, Operation, OperationContext
from operad_mcp._live import ServerLogger

Json = dict[str, Any]
AnyOperation = Operation[..., Any]
_DEFINITION = ("title", "description", "inputSchema", "outputSchema", "annotations")


class Pins:
    """The first definitions of a server's tools."""

    def __init__(self, logger: ServerLogger) -> None:
        self._logger = logger
        self._first: dict[str, tuple[Json, AnyOperation]] = {}

    def held(self, tool: Json, made: AnyOperation) -> AnyOperation:
        """The operation as it was first; one whose definition has changed refuses its calls until it is back."""
        definition = {key: tool.get(key) for key in _DEFINITION}
        first, operation = self._first.setdefault(tool["name"], (definition, made))
        changed = [key for key in _DEFINITION if _text(first[key]) != _text(definition[key])]
        if not changed:
            return operation
        what = f"the definition of {operation.id} changed since it was pinned: {', '.join(changed)}"
        self._logger.warning("%s; its calls are refused until the source is loaded again", what)

        async def refuse(input: Any, context: OperationContext) -> Any:
            message = f"{what}; look at it, and load the source again to accept it"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "changed": changed})

        return Operation(operation.spec, refuse)


def _text(value: Any) -> str:
    """JSON for comparison: to Python ``1``, ``1.0`` and ``true`` are the same."""
    return json.dumps(value, sort_keys=True, default=str)
