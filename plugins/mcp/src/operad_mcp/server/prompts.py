"""The prompts of a served registry, and the completion of arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from operad import CallError, OperationContext, OperationSpec
from operad.plugin import may_list
from operad_mcp.config import maybe_await
from operad_mcp.server.door import Door
from operad_mcp.server.kinds import Json, described, mcp_metadata
from operad_mcp.server.results import prompt_result, within

_MAX_VALUES = 100
"""The maximum number of values in a completion, by the protocol."""


class Prompts:
    """The handlers of requests for prompts and completions.

    Args:
        door: the served registry.
        complete: the application's function for completions, see `operad_mcp.serving.Complete`, or ``None``.
    """

    def __init__(self, door: Door, complete: Any = None) -> None:
        self._door = door
        self._complete = complete

    async def listed(self, ctx: Any, params: Any) -> Json:
        """Handle ``prompts/list``: return a page of the prompts that the caller may use.

        Raises `MCPError` if the cursor is invalid.
        """
        identity = self._door.caller(ctx)
        items = [
            _prompt(name, spec)
            for name, spec in sorted(self._door.listing.prompts.items())
            if may_list(spec.access_control, identity)
        ]
        return self._door.page("prompts/list", "prompts", items, ctx, params)

    async def get(self, ctx: Any, params: Any) -> Json:
        """Handle ``prompts/get``: return the messages of a prompt.

        Raises `MCPError` if the prompt does not exist, or its operation fails.
        """
        spec = self._door.listing.prompts.get(params.name)
        if spec is None:
            hint = "prompts/list returns the known prompts"
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name:.100}; {hint}")
        input = {name: _decoded(spec, name, value) for name, value in (params.arguments or {}).items()}

        async def call(context: OperationContext) -> Json:
            envelope = await self._door.registry.execute(spec.id, input, context)
            return within(prompt_result(envelope, spec.description), self._door.config.result_bytes)

        try:
            return await self._door.run(ctx, call)
        except CallError as error:
            raise self._door.refused(error, spec.id) from error

    async def complete(self, ctx: Any, params: Any) -> Json:
        """Handle ``completion/complete``: return at most 100 values of an argument that begin with the typed text.

        The values are the application's, else those that the schema enumerates. A prompt or template that is
        unknown, or that the caller may not use, has no values.
        """
        spec = self._referred(params.ref)
        identity = self._door.caller(ctx)
        values: list[str] = []
        if spec is not None and may_list(spec.access_control, identity):
            typed = params.argument.value
            values = [
                value for value in await self._values(spec, params.argument.name, typed) if value.startswith(typed)
            ]
        completion: Json = {"values": values[:_MAX_VALUES], "total": len(values)}
        return {"completion": {**completion, "hasMore": len(values) > _MAX_VALUES}}

    def _referred(self, reference: Any) -> OperationSpec | None:
        listing = self._door.listing
        if reference.type == "ref/prompt":
            return listing.prompts.get(reference.name)
        return listing.templates.get(str(reference.uri))

    async def _values(self, spec: OperationSpec, argument: str, typed: str) -> list[str]:
        if self._complete is not None:
            found = await maybe_await(self._complete(spec, argument, typed))
            if found is not None:
                return [str(value) for value in found]
        allowed = _property(spec, argument).get("enum")
        return [str(value) for value in allowed] if isinstance(allowed, list) else []


def _prompt(name: str, spec: OperationSpec) -> Json:
    made = {**described(spec, ("icons", "_meta")), "name": name}
    listed = mcp_metadata(spec).get("arguments")
    arguments = listed if isinstance(listed, list) else _arguments(spec)
    return {**made, "arguments": arguments} if arguments else made


def _arguments(spec: OperationSpec) -> list[Json]:
    schema = spec.input_schema.published()
    required = schema.get("required", []) if isinstance(schema, dict) else []
    arguments = []
    for name, field in _properties(spec).items():
        argument: Json = {"name": name, "required": name in required}
        if isinstance(field, Mapping) and isinstance(field.get("description"), str):
            argument["description"] = field["description"]
        arguments.append(argument)
    return arguments


def _properties(spec: OperationSpec) -> Mapping[str, Any]:
    schema = spec.input_schema.published()
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, Mapping) else {}


def _property(spec: OperationSpec, name: str) -> Mapping[str, Any]:
    found = _properties(spec).get(name)
    return found if isinstance(found, Mapping) else {}


def _decoded(spec: OperationSpec, name: str, value: str) -> Any:
    """Return an argument in the type that its operation takes. The arguments of prompts are strings."""
    if _property(spec, name).get("type") in ("integer", "number", "boolean", "array", "object"):
        try:
            return json.loads(value)
        except ValueError:
            return value  # validation reports what is wrong with it
    return value
