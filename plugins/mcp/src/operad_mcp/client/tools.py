"""The operations for tools, as described by the server or changed by the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from operad import OperationContext, OperationType, ResponseEnvelope, Schema, from_schema
from operad.names import safe_names
from operad_mcp.client.items import AnyOperation, Json, Maker, metadata_of, nested, safe, text_of, tool_envelope
from operad_mcp.client.tasks import Tasks
from operad_mcp.config import MCPArgument, MCPTool

_AS_IT_IS = MCPTool()


class Tools:
    """Converts the tools of an MCP server to operations."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._config = maker.config
        self._tasks = Tasks(maker)

    def make(self, tool: Json) -> AnyOperation | None:
        """Return the operation of a tool, or ``None`` if the configuration hides it.

        Raises `ValueError` if the changes in the configuration do not fit the tool.
        """
        name = tool["name"]
        override = self._config.overrides.get(name, _AS_IT_IS)
        if override.hide:
            return None
        inner = inner_schema(tool)
        output = tool.get("outputSchema") if inner is None else inner
        output_schema = from_schema(output) if isinstance(output, (dict, bool)) else None
        found = tool.get("annotations")
        annotations = found if isinstance(found, dict) else {}
        kind, idempotent = self._promises(annotations, override)
        offered = override.name or own_name(tool)
        arguments = Arguments(object_schema(tool.get("inputSchema")), override.arguments)
        return self._maker.operation(
            offered,
            self._handler(
                name,
                offered,
                output_schema,
                arguments,
                is_safe=kind is OperationType.QUERY,
                wraps=inner is not None,
                support=text_of(nested(tool, "execution", "taskSupport")),
            ),
            type=kind,
            idempotent=idempotent,
            title=override.title or text_of(tool.get("title")) or text_of(annotations.get("title")),
            description=override.description or text_of(tool.get("description")) or "",
            input_schema=from_schema(arguments.schema),
            output_schema=output_schema,
            metadata=metadata_of("tool", tool),
        )

    def _promises(self, annotations: Json, override: MCPTool) -> tuple[OperationType, bool]:
        """Return the type, and whether it is idempotent. The server's hints are used only if they are trusted."""
        trusted = self._config.trust_annotations
        kind = "query" if trusted and annotations.get("readOnlyHint") is True else "mutation"
        idempotent = trusted and annotations.get("idempotentHint") is True
        if override.idempotent is not None:
            idempotent = override.idempotent
        return OperationType(override.type or kind), idempotent

    def _handler(
        self,
        name: str,
        offered: str,
        output_schema: Schema | None,
        arguments: Arguments,
        *,
        is_safe: bool,
        wraps: bool,
        support: str | None,
    ) -> Callable[..., Any]:
        text_schema = output_schema if self._config.parse_json_text else None

        async def call_tool(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            params = {"name": name, "arguments": arguments.given(input)}
            raw, live = await self._tasks.call(params, context, name=safe(offered), safe=is_safe, support=support)
            return await tool_envelope(unwrapped(raw) if wraps else raw, live, text_schema)

        return call_tool


class Arguments:
    """The arguments of a tool with the changes of the configuration.

    Raises `ValueError` if the changes do not fit the arguments in ``schema``, the tool's input schema.
    """

    def __init__(self, schema: Json, overrides: Mapping[str, MCPArgument]) -> None:
        self._names = {name: argument.name for name, argument in overrides.items() if argument.name is not None}
        self._values = {
            name: argument.value for name, argument in overrides.items() if argument.value is not msgspec.UNSET
        }
        self.schema: Json = self._offered(schema, overrides) if overrides else schema
        """The input schema of the operation."""
        self._back = {offered: name for name, offered in self._names.items()}

    def _offered(self, schema: Json, overrides: Mapping[str, MCPArgument]) -> Json:
        found = schema.get("properties")
        properties = found if isinstance(found, dict) else {}
        unknown = overrides.keys() - properties.keys()
        if unknown:
            known = ", ".join(properties)[:200] or "none"
            raise ValueError(f"overrides name the unknown argument {sorted(unknown)[0]!r}; the tool has {known}")
        gone = {name for name, argument in overrides.items() if argument.hide} | self._values.keys()
        listed = schema.get("required")
        required = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
        needed = sorted(gone & set(required) - self._values.keys())
        if needed:
            raise ValueError(f"overrides hide the argument {needed[0]!r}, which is required; set a value for it")
        offered = {
            self._names.get(name, name): self._described(part, overrides.get(name))
            for name, part in properties.items()
            if name not in gone
        }
        if len(offered) != len(properties) - len(gone):
            names = [self._names.get(name, name) for name in properties if name not in gone]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"overrides give the name {twice!r} to two arguments; choose another name for one")
        return {
            **schema,
            "properties": offered,
            "required": [self._names.get(name, name) for name in required if name not in gone],
        }

    def _described(self, part: Any, argument: MCPArgument | None) -> Any:
        if argument is None or argument.description is None:
            return part
        return {**part, "description": argument.description} if isinstance(part, dict) else part

    def given(self, input: Json) -> Json:
        """Return the arguments to send to the tool for an input of the operation."""
        if not self._back and not self._values:
            return input
        return {**{self._back.get(name, name): value for name, value in input.items()}, **self._values}


def inner_schema(tool: Json) -> Any:
    """Return the schema of data that an operad server wraps in an object; ``None`` if the data is not wrapped."""
    meta, output = tool.get("_meta"), tool.get("outputSchema")
    if not isinstance(meta, dict) or meta.get("operad/wrapped") is not True or not isinstance(output, dict):
        return None
    properties = output.get("properties")
    inner = properties.get("result") if isinstance(properties, dict) else None
    if not isinstance(inner, (dict, bool)):
        return None
    definitions = output.get("$defs")
    return {**inner, "$defs": definitions} if isinstance(inner, dict) and definitions else inner


def unwrapped(raw: Any) -> Any:
    """Return a tool's result with the field ``result`` of its structured content as the structured content.

    An error, and a result without that field, are returned unchanged.
    """
    structured = raw.get("structuredContent") if isinstance(raw, dict) else None
    if not isinstance(structured, dict) or "result" not in structured or raw.get("isError") is True:
        return raw
    return {**raw, "structuredContent": structured["result"]}


def own_name(tool: Json) -> str:
    """Return the id of the operation if the tool comes from an operad server, else the tool's name.

    A server may send any id. An id is used only if operad would make the tool's name from it.
    """
    name: str = tool["name"]
    own = nested(tool, "_meta", "operad/id")
    return own if isinstance(own, str) and name in safe_names({own: own}) else name


def object_schema(schema: Any) -> Json:
    """Return an input schema with ``type: object``, which the protocol requires.

    For a value that is not a dict, return ``{"type": "object"}``.
    """
    if not isinstance(schema, dict):
        return {"type": "object"}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}
