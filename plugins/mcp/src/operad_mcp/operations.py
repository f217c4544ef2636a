"""What an MCP server offers, as operations: tools, resources, resource templates, prompts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from operad import (
    CallError,
    Operation,
    OperationContext,
    OperationSpec,
    OperationType,
    ResponseEnvelope,
    Schema,
    from_schema,
)
from operad_mcp._blocks import TextContent, as_text, map_mcp_content_blocks
from operad_mcp._connection import Connection
from operad_mcp._live import Live
from operad_mcp._schemas import object_schema
from operad_mcp._templates import expand, variables
from operad_mcp._wrapped import inner_schema, own_name, unwrapped
from operad_mcp.config import MCPClientConfig, MCPProgress
from operad_mcp.envelopes import mcp_envelope

Json = dict[str, Any]
AnyOperation = Operation[..., Any]

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

_URI = {"type": "string", "description": "The URI of the resource."}
_URI_INPUT = {"type": "object", "properties": {"uri": _URI}, "required": ["uri"], "additionalProperties": False}
_NOTHING: Json = {"type": "object", "properties": {}}
_CONTENTS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"uri": {"type": "string"}, "mimeType": {"type": "string"}, "text": {"type": "string"},
                       "blob": {"type": "string", "contentEncoding": "base64"}},
        "required": ["uri"],
        "additionalProperties": True,
    },
}  # fmt: skip
_ITEMS = {"type": "array", "items": {"type": "object", "additionalProperties": True}}
_MESSAGES = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "messages": _ITEMS},
    "required": ["messages"],
    "additionalProperties": True,
}


class Offer:
    """The operations of a server, listed again when they change; what did not change stays the same object.

    Args:
        connection: to the server.
        namespace: of the operations.
        prefix: of their names.
    """

    def __init__(self, connection: Connection, namespace: str, prefix: str = "") -> None:
        self._connection = connection
        self._config: MCPClientConfig = connection.config
        self._namespace = namespace
        self._prefix = prefix
        self._logger = connection.logger
        self._made: dict[tuple[str, str], tuple[Any, AnyOperation]] = {}
        self.tools: Sequence[AnyOperation] = ()
        self.resources: Sequence[AnyOperation] = ()
        self.prompts: Sequence[AnyOperation] = ()

    @property
    def operations(self) -> list[AnyOperation]:
        """All operations."""
        merged: dict[str, AnyOperation] = {}
        for operation in (*self.tools, *self.resources, *self.prompts):
            if operation.id in merged:
                self._logger.warning("%s is offered twice; the first is taken", operation.id)
            else:
                merged[operation.id] = operation
        return list(merged.values())

    async def refresh(self, what: str = "all") -> None:
        """List ``tools``, ``resources``, ``prompts`` or ``all`` of them. Raises `CallError`."""
        live = await self._connection.open()
        config, offered = self._config, live.capabilities
        if what in ("all", "tools") and config.tools:
            # A server that declares nothing may still have tools: old ones did not care.
            listed = await self._list("tools/list", "tools", "tools" in offered or not offered)
            self.tools = self._each("tool", listed, self._tool)
        # Many servers declare resources and prompts and have none: then there is nothing to offer.
        if what in ("all", "resources") and config.resources and "resources" in offered:
            templates = await self._list("resources/templates/list", "resourceTemplates", False)
            some = templates or await self._list("resources/list", "resources", False)
            fixed = self._resource_operations(live) if some else []
            self.resources = [*fixed, *self._each("template", templates, self._template)]
        if what in ("all", "prompts") and config.prompts and "prompts" in offered:
            prompts = await self._list("prompts/list", "prompts", False)
            fixed = self._prompt_operations() if prompts else []
            self.prompts = [*fixed, *self._each("prompt", prompts, self._prompt)]

    async def _list(self, method: str, key: str, required: bool) -> list[Any]:
        try:
            return await self._connection.pages(method, key)
        except CallError as error:
            if required:
                raise
            self._logger.warning("%s cannot be listed: %s", key, error)
            return []

    def _each(
        self, kind: str, items: Iterable[Any], make: Callable[[Json], AnyOperation | None]
    ) -> list[AnyOperation]:
        """An operation per item. A bad item is reported and left out; the others are not lost for it."""
        made: dict[str, AnyOperation] = {}
        for item in items:
            name = item.get("name") if isinstance(item, dict) else None
            if not isinstance(name, str) or not name:
                self._logger.warning("a %s without a name is left out: %.200r", kind, item)
                continue
            known = self._made.get((kind, name))
            try:
                operation = known[1] if known is not None and known[0] == item else make(item)
            except Exception as error:  # noqa: BLE001  # whatever is wrong with it, it is this item's alone
                self._logger.warning("the %s %r is left out: %s", kind, name, error)
                continue
            if operation is None or not self._wanted(operation.spec.name):
                continue
            if operation.id in made:
                self._logger.warning("%s is offered twice; the first is taken", operation.id)
                continue
            self._made[kind, name] = (item, operation)
            made[operation.id] = operation
        return list(made.values())

    def _wanted(self, name: str) -> bool:
        name = name.removeprefix(self._prefix)
        include, exclude = self._config.include, self._config.exclude
        return (include is None or any(fnmatchcase(name, pattern) for pattern in include)) and not any(
            fnmatchcase(name, pattern) for pattern in exclude
        )

    def _operation(self, name: str, handler: Callable[..., Any], **spec: Any) -> AnyOperation:
        return Operation(
            OperationSpec(namespace=self._namespace, name=self._prefix + _safe(name), **spec), handler
        )

    def _fixed(self, operations: Iterable[AnyOperation]) -> list[AnyOperation]:
        """The operations that are not an item of a listing, the same objects each time."""
        kept = []
        for operation in operations:
            known = self._made.setdefault(("fixed", operation.id), (None, operation))[1]
            if self._wanted(known.spec.name):
                kept.append(known)
        return kept

    # --- tools -----------------------------------------------------------------------------------

    def _tool(self, tool: Json) -> AnyOperation | None:
        name = tool["name"]
        if _nested(tool, "execution", "taskSupport") == "required":
            self._logger.warning("the tool %r runs as a task only, which is not supported: left out", name)
            return None
        inner = inner_schema(tool)
        output = tool.get("outputSchema") if inner is None else inner
        output_schema = from_schema(output) if isinstance(output, (dict, bool)) else None
        found = tool.get("annotations")
        annotations = found if isinstance(found, dict) else {}
        read_only = self._config.trust_annotations and annotations.get("readOnlyHint") is True
        return self._operation(
            own_name(tool),
            self._tool_handler(name, output_schema, safe=read_only, wraps=inner is not None),
            type=OperationType.QUERY if read_only else OperationType.MUTATION,
            idempotent=self._config.trust_annotations and annotations.get("idempotentHint") is True,
            title=_text(tool.get("title")) or _text(annotations.get("title")),
            description=_text(tool.get("description")) or "",
            input_schema=from_schema(object_schema(tool.get("inputSchema"))),
            output_schema=output_schema,
            metadata=_metadata("tool", tool),
        )

    def _tool_handler(
        self, name: str, output_schema: Schema | None, *, safe: bool, wraps: bool
    ) -> Callable[..., Any]:
        connection, config = self._connection, self._config
        operation_id = f"{self._namespace}.{self._prefix}{_safe(name)}"

        async def call_tool(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            raw, live = await connection.request(
                "tools/call",
                {"name": name, "arguments": input},
                safe=safe,
                timeout=_timeout(config, context),
                progress=_progress(config, operation_id, context),
            )
            raw = unwrapped(raw) if wraps else raw
            return tool_envelope(raw, live, output_schema if config.parse_json_text else None)

        return call_tool

    # --- resources ---------------------------------------------------------------------------------

    def _resource_operations(self, live: Live) -> list[AnyOperation]:
        connection, config = self._connection, self._config

        async def list_resources(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            items = await connection.pages("resources/list", "resources")
            return _envelope(items, await connection.open())

        async def read(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._read(input["uri"], context)

        async def subscribe(input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[Any]]:
            updates = connection.watch_resource(input["uri"])
            try:
                async for update in updates:
                    yield _envelope(update, await connection.open())
            finally:
                await updates.aclose()

        query = OperationType.QUERY
        operations = [
            self._operation(
                "resources.list", list_resources, type=query, input_schema=_NOTHING, output_schema=_ITEMS,
                description="The resources that the server offers.", metadata=_fixed_kind("resources.list"),
            ),
            self._operation(
                "resources.read", read, type=query, input_schema=_URI_INPUT, output_schema=_CONTENTS,
                description="The contents of a resource.", metadata=_fixed_kind("resources.read"),
            ),
        ]  # fmt: skip
        if config.resources and _nested(live.capabilities, "resources", "subscribe"):
            operations.append(
                self._operation(
                    "resources.subscribe", subscribe, type=OperationType.SUBSCRIPTION, input_schema=_URI_INPUT,
                    output_schema={"type": "object", "properties": {"uri": _URI}, "required": ["uri"]},
                    description="An item whenever a resource changes; read it to see how.",
                    metadata=_fixed_kind("resources.subscribe"),
                )
            )  # fmt: skip
        return self._fixed(operations)

    def _template(self, template: Json) -> AnyOperation:
        pattern = template["uriTemplate"]
        if not isinstance(pattern, str):
            raise TypeError(f"uriTemplate: expected a string, got {type(pattern).__name__}")
        names = variables(pattern)

        async def read(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._read(expand(pattern, input), context)

        strings: Json = {"type": ["string", "array", "integer", "number"], "items": {"type": "string"}}
        return self._operation(
            f"resources.templates.{template['name']}",
            read,
            type=OperationType.QUERY,
            title=_text(template.get("title")),
            description=_text(template.get("description")) or f"The contents of {pattern}.",
            input_schema={
                "type": "object",
                "properties": dict.fromkeys(names, strings),
                "required": [name for name, required in names.items() if required],
                "additionalProperties": False,
            },
            output_schema=_CONTENTS,
            metadata=_metadata("resourceTemplate", template),
        )

    async def _read(self, uri: str, context: OperationContext) -> ResponseEnvelope[Any]:
        raw, live = await self._connection.request(
            "resources/read", {"uri": uri}, safe=True, timeout=_timeout(self._config, context)
        )
        found = raw.get("contents") if isinstance(raw, dict) else None
        contents = found if isinstance(found, list) else []
        blocks = [{"type": "resource", "resource": item} for item in contents]
        return _envelope(contents, live, content=blocks, meta=_meta(raw))

    # --- prompts -----------------------------------------------------------------------------------

    def _prompt_operations(self) -> list[AnyOperation]:
        connection = self._connection

        async def list_prompts(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            items = await connection.pages("prompts/list", "prompts")
            return _envelope(items, await connection.open())

        async def get(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._get_prompt(input["name"], input.get("arguments", {}), context)

        arguments = {"type": "object", "additionalProperties": {"type": "string"}}
        return self._fixed(
            [
                self._operation(
                    "prompts.list", list_prompts, type=OperationType.QUERY, input_schema=_NOTHING,
                    output_schema=_ITEMS, description="The prompts that the server offers.",
                    metadata=_fixed_kind("prompts.list"),
                ),
                self._operation(
                    "prompts.get", get, type=OperationType.QUERY, output_schema=_MESSAGES,
                    description="The messages of a prompt.", metadata=_fixed_kind("prompts.get"),
                    input_schema={
                        "type": "object", "required": ["name"], "additionalProperties": False,
                        "properties": {"name": {"type": "string"}, "arguments": arguments},
                    },
                ),
            ]
        )  # fmt: skip

    def _prompt(self, prompt: Json) -> AnyOperation:
        name = prompt["name"]
        listed = prompt.get("arguments")
        arguments = [
            argument
            for argument in (listed if isinstance(listed, list) else ())
            if isinstance(argument, dict) and isinstance(argument.get("name"), str)
        ]

        async def get(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._get_prompt(name, input, context)

        return self._operation(
            f"prompts.get.{name}",
            get,
            type=OperationType.QUERY,
            title=_text(prompt.get("title")),
            description=_text(prompt.get("description")) or "",
            input_schema={
                "type": "object",
                "properties": {
                    argument["name"]: {"type": "string", "description": _text(argument.get("description")) or ""}
                    for argument in arguments
                },
                "required": [argument["name"] for argument in arguments if argument.get("required") is True],
                "additionalProperties": False,
            },
            output_schema=_MESSAGES,
            metadata=_metadata("prompt", prompt),
        )

    async def _get_prompt(self, name: str, arguments: Json, context: OperationContext) -> ResponseEnvelope[Any]:
        params = {"name": name, "arguments": arguments}
        timeout = _timeout(self._config, context)
        raw, live = await self._connection.request("prompts/get", params, safe=True, timeout=timeout)
        answer = raw if isinstance(raw, dict) else {}
        messages = answer.get("messages")
        messages = messages if isinstance(messages, list) else []
        data: Json = {"messages": messages}
        if isinstance(answer.get("description"), str):
            data["description"] = answer["description"]
        blocks = [message.get("content") for message in messages if isinstance(message, dict)]
        return _envelope(data, live, content=blocks, meta=_meta(raw))


# --- answers -------------------------------------------------------------------------------------------


def tool_envelope(raw: Any, live: Live, text_schema: Schema | None = None) -> ResponseEnvelope[Any]:
    """The envelope of a tool's raw result. Nothing that the server sent is refused or lost.

    Args:
        raw: ``{content, structuredContent?, isError?, _meta?}``, if the server keeps to the protocol.
        live: the connection that it came by.
        text_schema: take a lone text that is JSON, and fits, as the data.
    """
    if not isinstance(raw, dict):
        raw = {"content": [TextContent.of(as_text(raw))]}
    content = map_mcp_content_blocks(raw.get("content"))
    is_error = raw.get("isError") is True
    structured = raw.get("structuredContent", msgspec.UNSET)
    data = structured
    if data is msgspec.UNSET:
        data = [block.to_wire() for block in content]
        if text_schema is not None and not is_error and len(content) == 1:
            data = _parsed(content[0], text_schema, data)
    return mcp_envelope(
        data,
        is_error=is_error,
        content=content,
        structured_content=structured,
        meta=_meta(raw),
        protocol_version=live.protocol_version,
        server=live.server,
    )


def _parsed(block: Any, schema: Schema, otherwise: Any) -> Any:
    if not isinstance(block, TextContent):
        return otherwise
    try:
        value = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return otherwise
    return value if schema.is_valid(value) else otherwise


def _envelope(data: Any, live: Live, *, content: Any = (), meta: Any = msgspec.UNSET) -> ResponseEnvelope[Any]:
    return mcp_envelope(
        data, content=content, meta=meta, protocol_version=live.protocol_version, server=live.server
    )


def _meta(raw: Any) -> Any:
    return raw.get("_meta", msgspec.UNSET) if isinstance(raw, dict) else msgspec.UNSET


def _timeout(config: MCPClientConfig, context: OperationContext) -> float | None:
    """The configured timeout is for calls that have no deadline of their own."""
    return config.timeout if context.deadline is None else None


def _progress(config: MCPClientConfig, operation_id: str, context: OperationContext) -> ProgressFnT | None:
    report = config.on_progress
    if report is None and context.client is None:
        return None

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        from operad_mcp._callbacks import maybe_await

        await context.progress(progress, total, message)
        if report is not None:
            await maybe_await(report(MCPProgress(operation_id, context.request_id, progress, total, message)))

    return progress


def _fixed_kind(kind: str) -> Json:
    """The mark of an operation that is no item of a listing, for a server that passes it on as what it was."""
    return {"mcp": {"kind": kind}}


def _metadata(kind: str, item: Json) -> Json:
    """What a listing says of an item beyond what a spec has fields for; hints, not to be trusted."""
    dropped = ("inputSchema", "outputSchema", "description", "title")
    metadata: Json = {"mcp": {**{key: value for key, value in item.items() if key not in dropped}, "kind": kind}}
    if isinstance(item.get("annotations"), dict):
        metadata["annotations"] = item["annotations"]
    return metadata


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _nested(value: Mapping[str, Any], *keys: str) -> Any:
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _safe(name: str) -> str:
    """A name that an operation's id can hold: white space and unprintable characters become ``_``."""
    return "".join(c if c.isprintable() and not c.isspace() else "_" for c in name) if _BAD.search(name) else name


_BAD = re.compile(r"[^!-~]")
