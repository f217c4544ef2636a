"""The tools of a served registry: one for each operation, or three that search, describe and call operations."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from functools import partial
from typing import Any

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from operad import (
    CallError,
    ErrorCode,
    ErrorDefinition,
    OperadError,
    OperationContext,
    OperationSpec,
    OperationType,
    from_schema,
)
from operad.plugin import may_list
from operad.wire import to_json
from operad.words import nearest
from operad_mcp.server.door import PRIVATE, Door, is_handshake
from operad_mcp.server.forms import INPUT, ToolForm, bare_form, told
from operad_mcp.server.kinds import Json
from operad_mcp.server.results import bounded, data_result, error_result, stream_result, text_block, tool_result

_CURSOR = "after:"
_PAGE_BYTES = 96 * 1024
"""The approximate maximum size in bytes of a page of tools. A larger page ends early."""
_MEANT, _MEANT_OF = 8, 2_000
"""The maximum difference in length of a suggested id, and the maximum number of ids that are compared."""
_SHORT = 120
"""The maximum number of characters of a description in search results."""
_PREVIEW = 2_000
"""The maximum number of characters of an item in a progress report."""


class Tools:
    """The handlers of requests for tools. ``levels(ctx)`` returns the lowest level of logs to send to a client."""

    def __init__(self, door: Door, levels: Any) -> None:
        self._door = door
        self._level_of = levels

    # --- listing ---------------------------------------------------------------------------------

    async def listed(self, ctx: Any, params: Any) -> Json:
        """Handle ``tools/list``: return a page of the tools that the caller may call, or the search tools.

        Raises `MCPError` if the cursor is invalid.
        """
        if self._door.searches:
            return {**PRIVATE, "tools": list(_SEARCH_TOOLS.values())}
        cursor = None if params is None else params.cursor
        if cursor is not None and not cursor.startswith(_CURSOR):
            raise MCPError(
                types.INVALID_PARAMS, f"Invalid cursor: expected a nextCursor of tools/list, got {cursor!r:.100}"
            )
        after = None if cursor is None else cursor.removeprefix(_CURSOR)
        door, handshake = self._door, is_handshake(ctx)
        found, last = door.listing.page(after, door.config.page_size, door.caller(ctx))
        tools: list[Json] = []
        size = 0
        for index, (name, spec) in enumerate(found):
            if size > _PAGE_BYTES:  # a page is written in one step of the loop
                last = found[index - 1][0]
                break
            spec = await self._described(spec)
            known = door.has_form(name, spec, handshake=handshake)
            # The schema of a large tool takes tens of milliseconds to make, so it is made in a thread.
            make = partial(door.form, name, spec, handshake=handshake)
            form = make() if known else await asyncio.to_thread(make)
            if form is not None:
                tools.append(form.tool)
                size += form.size
        listed: Json = {**PRIVATE, "tools": tools}
        return listed if last is None else {**listed, "nextCursor": _CURSOR + last}

    async def _described(self, spec: OperationSpec) -> OperationSpec:
        """Return the spec with its schemas, which a source may omit until they are needed."""
        try:
            if spec.input_schema.raw is not True:
                return spec
            return await self._door.registry.describe(spec.id) or spec
        except Exception:  # noqa: BLE001  # its source cannot be reached: it is listed with its known schemas
            return spec

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool whose arguments are also HTTP headers; ``None`` for any other tool.

        The SDK compares arguments and headers by it. Without this function, the SDK lists all tools before each
        call. The SDK does not pass the caller, so the schemas of other tools are not returned.
        """
        listing = self._door.listing
        spec = listing.tools.get(name)
        if spec is None or self._door.searches_in(listing):
            return None
        form = self._door.form(name, spec, handshake=False)
        return form.tool["inputSchema"] if form is not None and form.has_headers else None

    # --- calling ---------------------------------------------------------------------------------

    async def call(self, ctx: Any, params: Any) -> Json:
        """Handle ``tools/call``: call the operation of a tool, or one of the three search tools.

        A failed operation is returned as an error result. Raises `MCPError` if the tool does not exist, the client
        lacks a capability that the handler needs, or the user must visit a URL first.
        """
        arguments: Json = params.arguments or {}
        listing = self._door.listing
        if self._door.searches_in(listing):
            return await self._call_search(ctx, params.name, arguments)
        spec = listing.tools.get(params.name)
        if spec is not None:
            spec = await self._described(spec)
            form = self._door.form(params.name, spec, handshake=is_handshake(ctx))
            if form is not None:
                input = arguments.get(INPUT) if form.wraps_input else arguments
                return await self._answer(ctx, form, input)
        raise _unknown(params.name)

    async def _answer(self, ctx: Any, form: ToolForm, input: Any) -> Json:
        """Call an operation, and return its result or a result with its error."""
        spec, registry, handshake = form.spec, self._door.registry, is_handshake(ctx)

        async def call(context: OperationContext) -> Json:
            if spec.type is OperationType.SUBSCRIPTION:
                made = await self._collect(spec, input, context)
            else:
                made = tool_result(await registry.execute(spec.id, input, context), form, handshake=handshake)
            return bounded(made, self._door.config.result_bytes, declares_output=form.declares_output)

        try:
            return await self._door.run(ctx, call, level=self._level_of(ctx))
        except CallError as error:
            return error_result(self._door.masked(error, spec.id))

    async def _collect(self, spec: OperationSpec, input: Any, context: OperationContext) -> Json:
        """Return the items of a stream as one result. Each item is also reported as progress when it arrives."""
        config = self._door.config
        context.deadline = None  # a stream that ends at its time limit is a result, not an error
        items: list[Any] = []
        size, truncated = 0, True
        most = min(config.stream_bytes, config.result_bytes // 3)  # the result has the items twice
        try:
            async with (
                asyncio.timeout(config.stream_timeout),
                self._door.registry.subscribe(spec.id, input, context) as stream,
            ):
                async for envelope in stream:
                    data = envelope.data
                    if isinstance(data, (bytes, bytearray, memoryview)):
                        data = base64.b64encode(bytes(data)).decode()
                    text = to_json(data).decode()
                    items.append(data)
                    size += len(text)
                    await context.progress(len(items), None, text[:_PREVIEW])
                    if len(items) >= config.stream_items or size >= most:
                        break
                else:
                    truncated = False
        except TimeoutError:
            pass
        return stream_result(items, truncated=truncated)

    # --- search, describe, call ------------------------------------------------------------------

    async def _call_search(self, ctx: Any, name: str, arguments: Json) -> Json:
        tool = _SEARCH_TOOLS.get(name)
        if tool is None:
            raise _unknown(name)
        errors = from_schema(tool["inputSchema"]).errors(arguments)
        try:
            if errors:
                raise CallError(ErrorCode.VALIDATION_ERROR, f"invalid input for {name}: {errors[0].message}")
            if name == "search":
                return await self._found(ctx, arguments)
            if name == "describe":
                made = await self._description(ctx, arguments["id"])
                return bounded(made, self._door.config.result_bytes, declares_output=False)
        except CallError as error:
            return error_result(error)
        spec = self._door.registry.get_spec(arguments["id"])
        input = arguments.get("input", {})
        if spec is None:  # a plugin may still resolve it
            spec = _unlisted(arguments["id"])
        elif isinstance(input, str):
            input = _parsed(input, await self._described(spec))
        if spec is None:
            return error_result(self._not_found(ctx, arguments["id"]))
        return await self._answer(ctx, bare_form(spec), input)

    async def _found(self, ctx: Any, arguments: Json) -> Json:
        registry, identity = self._door.registry, self._door.caller(ctx)
        await registry.prepare_search()
        limit = arguments.get("limit", 10)
        names = self._door.listing.names
        found: list[OperationSpec] = []
        # Search more, if results that the caller may not see were dropped.
        for depth in (4 * limit, len(registry)):
            best = registry.search(arguments["query"], depth)
            found = [spec for spec in best if spec.id in names and may_list(spec.access_control, identity)][:limit]
            if len(found) == limit or len(best) < depth:
                break
        made = [{"id": each.id, "type": str(each.type), "description": _in_short(each)} for each in found]
        text = "\n".join("{id} ({type}): {description}".format_map(each) for each in made)
        return {"content": [text_block(text or "nothing was found")], "structuredContent": {"operations": made}}

    def _error(self, definition: ErrorDefinition) -> Json:
        if told(definition.schema, self._door.config.output_values):
            return definition.to_wire()
        return {"code": definition.code, "description": definition.description}

    async def _description(self, ctx: Any, operation_id: str) -> Json:
        spec = self._door.registry.get_spec(operation_id)
        if spec is None or not may_list(spec.access_control, self._door.caller(ctx)):
            return error_result(self._not_found(ctx, operation_id))
        spec = await self._described(spec)
        data: Json = {"id": spec.id, "type": str(spec.type), "description": spec.description}
        if spec.title:
            data["title"] = spec.title
        data["inputSchema"] = spec.input_schema.published()
        if told(spec.output_schema, self._door.config.output_values):
            data["outputSchema"] = spec.output_schema.published()
        if spec.error_schemas:
            data["errors"] = [self._error(definition) for definition in spec.error_schemas]
        return data_result(data)

    def _not_found(self, ctx: Any, operation_id: str) -> CallError:
        """Return the error for an unknown id, with a similar id that the caller may call."""
        listing, identity = self._door.listing, self._door.caller(ctx)
        known = [spec.id for spec in listing.tools.values() if may_list(spec.access_control, identity)]
        # A model often leaves out the namespace.
        meant = next((each for each in known if each.endswith(f".{operation_id}")), None)
        if meant is None:
            size = len(operation_id)
            meant = nearest(operation_id, [each for each in known if abs(len(each) - size) <= _MEANT][:_MEANT_OF])
        hint = f'did you mean "{meant}"?' if meant else "use search to find operations"
        message = f'unknown operation "{operation_id}"; {hint}'
        return CallError(ErrorCode.OPERATION_NOT_FOUND, message, {"operationId": operation_id})


def _unknown(name: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"Unknown tool: {name:.100}; tools/list returns the known tools")


def _in_short(spec: OperationSpec) -> str:
    """Return the first line of a description, for a list of search results."""
    text = next((line.strip() for line in spec.description.splitlines() if line.strip()), spec.title or "")
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _parsed(text: str, spec: OperationSpec) -> Any:
    """Return the input that a model wrote as JSON text, unless the operation takes the text itself."""
    if spec.input_schema.is_valid(text):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text  # validation reports what is wrong with it


def _unlisted(operation_id: str) -> OperationSpec | None:
    """Return a placeholder for an operation that only a plugin knows, so that it can be called."""
    namespace, dot, name = operation_id.partition(".")
    try:
        return OperationSpec(namespace=namespace, name=name) if dot else None
    except OperadError:
        return None


def _tool(name: str, description: str, properties: Json, *, reads: bool) -> Json:
    schema = {
        "type": "object", "properties": properties, "required": [next(iter(properties))],
        "additionalProperties": False,
    }  # fmt: skip
    hints = {"annotations": {"readOnlyHint": True, "openWorldHint": False}} if reads else {}
    return {"name": name, "description": description, "inputSchema": schema, **hints}


_ID = {"type": "string", "description": "The id of an operation, as search returns it."}
_QUERY = {"type": "string", "description": "A few words, such as: create pull request"}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": 50, "default": 10}
_INPUT = {"description": "The input of the operation, usually an object."}
_SEARCH = "Find operations by what they do. Returns their ids. Use describe to get the input of one."
_DESCRIBE = "Return the input and output of an operation as JSON Schemas."
_CALL = "Call an operation. Describe it first, and give an input that matches its inputSchema."
_SEARCH_TOOLS = {
    "search": _tool("search", _SEARCH, {"query": _QUERY, "limit": _LIMIT}, reads=True),
    "describe": _tool("describe", _DESCRIBE, {"id": _ID}, reads=True),
    "call": _tool("call", _CALL, {"id": _ID, "input": _INPUT}, reads=False),
}
