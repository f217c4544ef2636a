"""The parts that all conversions to operations share: names, metadata, and the request of each operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from operad import CallError, Operation, OperationContext, OperationSpec, OperationType, ResponseEnvelope, Schema
from operad_mcp.asking import askable
from operad_mcp.client.sessions import CallerSessions, is_unauthorized, without_credentials
from operad_mcp.config import MCPCall, MCPClientConfig, MCPProgress, maybe_await
from operad_mcp.content import ContentBlock, TextContent, as_text, in_turns, map_many_content_blocks
from operad_mcp.envelopes import mcp_envelope
from operad_mcp.foreign import clean_words
from operad_mcp.wire.connection import Connection
from operad_mcp.wire.session import Progress, Session

Json = dict[str, Any]
AnyOperation = Operation[..., Any]
NOTHING: Json = {"type": "object", "properties": {}}
ITEMS: Json = {"type": "array", "items": {"type": "object"}}
_BAD = re.compile(r"[^!-~]")


class Maker:
    """A factory for the operations of one server.

    Args:
        connection: the connection for listings, and for calls unless each caller has a session.
        namespace: the namespace of the operations.
        prefix: the prefix of their names.
        sessions: the sessions of callers if each call uses the credential of its caller, otherwise ``None``.
    """

    def __init__(
        self, connection: Connection, namespace: str, prefix: str = "", sessions: CallerSessions | None = None
    ) -> None:
        self.connection = connection
        self._sessions = sessions
        self.config: MCPClientConfig = connection.config
        self.namespace = namespace
        self.prefix = prefix

    def operation(self, name: str, handler: Callable[..., Any], **spec: Any) -> AnyOperation:
        """Return an operation; ``spec`` has further fields of its `OperationSpec`.

        Its name is the prefix and ``name``. Characters of ``name`` that an id cannot have become ``_``.
        """
        return Operation(OperationSpec(namespace=self.namespace, name=self.prefix + safe(name), **spec), handler)

    def fixed(
        self,
        name: str,
        handler: Callable[..., Any],
        description: str,
        *,
        type: OperationType = OperationType.QUERY,
        input_schema: Json = NOTHING,
        output_schema: Json | None = None,
    ) -> AnyOperation:
        """Return an operation of the server, by default a query, that is not made from an item of a listing."""
        return self.operation(
            name,
            handler,
            type=type,
            description=description,
            input_schema=input_schema,
            output_schema=output_schema,
            metadata={"mcp": {"kind": name}},
        )

    def lister(self, key: str) -> AnyOperation:
        """Return the operation that lists ``resources`` or ``prompts``."""

        async def listed(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            connection = await self.connection_of(context)
            items = await all_pages(connection, f"{key}/list", key)
            return envelope_of(items, await connection.open())

        return self.fixed(f"{key}.list", listed, f"The {key} that the server offers.", output_schema=ITEMS)

    def item(
        self, kind: str, item: Json, name: str, handler: Callable[..., Any], description: str = "", **spec: Any
    ) -> AnyOperation:
        """Return a query for an item of a listing. ``description`` is used if the item has no description."""
        return self.operation(
            name,
            handler,
            type=OperationType.QUERY,
            title=text_of(item.get("title")),
            description=text_of(item.get("description")) or description,
            metadata=metadata_of(kind, item),
            **spec,
        )

    async def ask(
        self, method: str, params: Json, context: OperationContext, *, name: str, safe: bool = True
    ) -> tuple[Any, Session]:
        """Send the request of a call with its timeout, headers and metadata; return the result and its session.

        ``name`` is the name of the operation, without the prefix. ``safe`` states whether the request may be sent
        again after a failure. Raises the same errors as `Connection.request` and `CallerSessions.of`.
        """
        if self._sessions is None:
            return await self._asked(self.connection, method, params, context, name, safe)
        connection = await self._sessions.of(context)
        try:
            return await self._asked(connection, method, params, context, name, safe)
        except CallError as error:
            # A refused credential (401) means that the request was not run. There may be a newer one.
            if not is_unauthorized(error) or not self._sessions.has_newer(context, connection):
                raise
        return await self._asked(await self._sessions.of(context), method, params, context, name, safe)

    async def connection_of(self, context: OperationContext) -> Connection:
        """Return the connection for a call. Raises the same errors as `CallerSessions.of`."""
        return self.connection if self._sessions is None else await self._sessions.of(context)

    async def _asked(
        self, connection: Connection, method: str, params: Json, context: OperationContext, name: str, safe: bool
    ) -> tuple[Any, Session]:
        call = self.call(context, name)
        return await connection.request(
            method,
            params,
            safe=safe,
            # The configured timeout is for calls that have no deadline of their own.
            timeout=self.config.timeout if context.deadline is None else None,
            progress=self._progress(call, context),
            call=call,
            extras=context.metadata if self._sessions is None else without_credentials(context.metadata),
        )

    def call(self, context: OperationContext, name: str) -> MCPCall:
        """Return the `MCPCall` that callbacks receive. ``name`` is the operation's name without the prefix."""
        return MCPCall(
            server=self.connection.name,
            operation_id=f"{self.namespace}.{self.prefix}{name}",
            request_id=context.request_id,
            identity=context.identity,
            report=context.report if context.is_observed else None,
            client=askable(context.client),
        )

    def _progress(self, call: MCPCall, context: OperationContext) -> Progress | None:
        report = self.config.on_progress
        if report is None and context.client is None and not context.is_observed and not self.config.renew_timeout:
            return None

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            await context.progress(progress, total, message)
            if report is not None:
                told = MCPProgress(call.operation_id or "", context.request_id, progress, total, message)
                await maybe_await(report(told))

        return progress


def safe(name: str) -> str:
    """Return a name with ``_`` for white space and unprintable characters, which an operation's id cannot have."""
    return "".join(c if c.isprintable() and not c.isspace() else "_" for c in name) if _BAD.search(name) else name


def text_of(value: Any) -> str | None:
    """Return ``value`` if it is a string that is not empty, else ``None``."""
    return value if isinstance(value, str) and value else None


def nested(value: Mapping[str, Any], *keys: str) -> Any:
    """Return the value at a path of keys in nested dicts; ``None`` if the path does not exist."""
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def metadata_of(kind: str, item: Json) -> Json:
    """Return the metadata of an operation: the kind and the fields of the item as ``mcp``, and ``annotations``.

    Title, description and schemas are left out, because a spec has fields for them. Do not trust the values: they
    are hints of the server.
    """
    dropped = ("inputSchema", "outputSchema", "description", "title")
    metadata: Json = {"mcp": {**{key: value for key, value in item.items() if key not in dropped}, "kind": kind}}
    if isinstance(item.get("annotations"), dict):
        metadata["annotations"] = item["annotations"]
    return metadata


async def all_pages(connection: Connection, method: str, key: str) -> list[Any]:
    """Return all items of a paged listing, within ``max_pages`` and ``max_listing_bytes``.

    ``key`` is the field of a page with its items. A repeated cursor or one of the two limits ends the listing with
    a warning. Then the items of the pages before are returned.

    Raises:
        CallError: a page cannot be loaded.
    """
    config, logger = connection.config, connection.logger
    items: list[Any] = []
    seen: set[str] = set()
    size = 0
    params: dict[str, Any] = {}
    for _ in range(config.max_pages):
        raw, _live = await connection.request(method, params, safe=True, timeout=config.timeout)
        page = raw if isinstance(raw, dict) else {}
        found, following = page.get(key), page.get("nextCursor")
        if seen or isinstance(following, str):  # a listing of one page is within max_message_bytes
            size += _size(page)
        if size > config.max_listing_bytes:
            message = "the listing %s is larger than max_listing_bytes = %d; its first %d items are used"
            logger.warning(message, method, config.max_listing_bytes, len(items))
            return items
        items += await in_turns(clean_words, found if isinstance(found, list) else ())
        if not isinstance(following, str):
            return items
        if following in seen:
            logger.warning("the listing %s repeats a cursor; its %d items are used", method, len(items))
            return items
        seen.add(following)
        params = {"cursor": following}
    message = "the listing %s has more than max_pages = %d pages; the first %d items are used"
    logger.warning(message, method, config.max_pages, len(items))
    return items


def _size(page: Any) -> int:
    """Return the bytes of a page's JSON."""
    try:
        return len(msgspec.json.encode(page))
    except (ValueError, RecursionError, OverflowError):  # a number or a depth that strict JSON does not allow
        return len(str(page))


# --- a server's responses as envelopes, which refuse and lose nothing that it sent -------------------------------


async def tool_envelope(raw: Any, live: Session, text_schema: Schema | None = None) -> ResponseEnvelope[Any]:
    """Return the envelope of a tool's raw result. Its data is the structured content, else the content blocks.

    Args:
        raw: ``{content, structuredContent?, isError?, _meta?}``. Any value but an object becomes a text block.
        live: the session on which the result was received.
        text_schema: if there is no structured content, a single text block with JSON that fits this schema becomes
            the data; if ``None``, text is not parsed.
    """
    if not isinstance(raw, dict):
        raw = {"content": [TextContent.of(as_text(raw))]}
    content = await map_many_content_blocks(raw.get("content"))
    is_error = raw.get("isError") is True
    structured = raw.get("structuredContent", msgspec.UNSET)
    data = structured
    if data is msgspec.UNSET:
        data = await in_turns(ContentBlock.to_wire, content)
        if text_schema is not None and not is_error and len(content) == 1:
            data = _parsed(content[0], text_schema, data)
    return mcp_envelope(
        data,
        is_error=is_error,
        content=content,
        structured_content=structured,
        meta=meta_of(raw),
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


def envelope_of(
    data: Any, live: Session, *, content: Any = (), meta: Any = msgspec.UNSET
) -> ResponseEnvelope[Any]:
    """Return the envelope of a response that is not a tool's result."""
    return mcp_envelope(
        data, content=content, meta=meta, protocol_version=live.protocol_version, server=live.server
    )


def meta_of(raw: Any) -> Any:
    """Return ``_meta`` of a response; ``msgspec.UNSET`` if it is missing."""
    return raw.get("_meta", msgspec.UNSET) if isinstance(raw, dict) else msgspec.UNSET
