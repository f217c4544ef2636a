"""The steps that requests to a served registry share: find the caller, list operations, run an operation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import attrs
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from operad import CallError, ErrorCode, Identity, OperationContext, OperationRegistry, OperationSpec
from operad.plugin import mask_error, trace_context
from operad.wire import to_json
from operad_auth.http import without_upstream
from operad_mcp.server.asking import Client, HandshakeClient, StatelessClient
from operad_mcp.server.forms import ToolForm, tool_form
from operad_mcp.server.kinds import Json, Listing, listing_of
from operad_mcp.server.options import MCPServeConfig

logger = logging.getLogger("operad.mcp")

R = TypeVar("R")
PRIVATE: Json = {"ttlMs": 0, "cacheScope": "private"}
"""The fields of every listing and read that keep shared caches from showing one caller's result to another."""
_OF_CODE_MODE = "operad.code"
"""The key in the metadata of operad-code's operations search, describe and run."""
_CONSENT = "AUTHORIZATION_REQUIRED"
CALLER = "operad.caller"
"""The key of the ASGI scope that holds the caller."""
CREDENTIALS = "operad.credentials"
"""The key of the ASGI scope that holds the caller's credentials."""


def is_handshake(ctx: Any) -> bool:
    """Return True if a request belongs to a revision before 2026-07-28."""
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


class Door:
    """A registry with the options for serving it to MCP clients."""

    def __init__(self, registry: OperationRegistry, config: MCPServeConfig) -> None:
        self.registry = registry
        self.config = config
        self._specs: Any = None
        self._listing: Listing | None = None
        self._untold: set[str] = set()
        self._forms: dict[tuple[str, bool], tuple[OperationSpec, ToolForm | None]] = {}
        if config.tools == "code":
            registry.plugins.source("code")  # without operad-code: an error that names it

    # --- listing ---------------------------------------------------------------------------------

    @property
    def listing(self) -> Listing:
        """The current operations, by kind. With ``tools = "code"``, the tools are only those of operad-code."""
        specs = self.registry.specs()
        if self._listing is None or specs is not self._specs:
            self._specs, self._listing = specs, listing_of(specs, self.config.names)
            tools = self._listing.tools
            if self.config.tools == "code":
                tools = {name: spec for name, spec in tools.items() if _OF_CODE_MODE in spec.metadata}
                self._listing = attrs.evolve(self._listing, tools=tools)
                if not tools:
                    logger.warning('tools = "code" needs a source of type "code", such as [sources.code]')
            if len(self._forms) > 4 * len(tools):  # forms of removed operations
                self._forms.clear()
        return self._listing

    @property
    def searches(self) -> bool:
        """Whether clients see three tools that search, describe and call operations, not a tool for each."""
        return self.searches_in(self.listing)

    def searches_in(self, listing: Listing) -> bool:
        """Return the value of `searches` for a listing that was made before."""
        wanted = self.config.tools
        return wanted == "search" or (wanted is None and len(listing.tools) > self.config.search_above)

    def has_form(self, name: str, spec: OperationSpec, *, handshake: bool) -> bool:
        """Return True if `form` has made this form before, and will return it immediately."""
        known = self._forms.get((name, handshake))
        return known is not None and known[0] is spec

    def form(self, name: str, spec: OperationSpec, *, handshake: bool) -> ToolForm | None:
        """Return an operation as a tool named ``name``, for revisions before 2026-07-28 if ``handshake``.

        Return ``None`` with a warning if the protocol's models reject it.
        """
        known = self._forms.get((name, handshake))
        if known is not None and known[0] is spec:
            return known[1]
        checked = self._made(name, spec, handshake)
        self._forms[name, handshake] = spec, checked
        return checked

    def _made(self, name: str, spec: OperationSpec, handshake: bool) -> ToolForm | None:
        """Return the form of an operation; if it cannot be made, the form without schemas and metadata."""
        values = self.config.output_values
        try:
            return self._checked(tool_form(name, spec, handshake=handshake, output_values=values), handshake)
        except Exception as error:  # noqa: BLE001  # a source's own: one that fails leaves the others listed
            if spec.id not in self._untold:
                self._untold.add(spec.id)
                logger.warning("the tool %r is listed without its schemas and metadata: %s", spec.id, error)
        bare = attrs.evolve(spec, input_schema=None, output_schema=None, metadata={})
        form = self._checked(tool_form(name, bare, handshake=handshake, output_values=values), handshake)
        return None if form is None else attrs.evolve(form, spec=spec)

    def _checked(self, form: ToolForm, handshake: bool) -> ToolForm | None:
        """Return a form that the SDK accepts, because one rejected tool would break the whole listing.

        First optional fields are dropped, then the tool.
        """
        for trimmings in ((), ("icons", "annotations", "title"), ("outputSchema",)):
            for key in trimmings:
                form.tool.pop(key, None)
            try:
                listed = fitting("tools/list", {"tools": [form.tool]}, handshake=handshake)
            except ValidationError as error:
                reason = _first(error)
            else:
                if trimmings:
                    logger.warning("the tool %r is listed without some of its fields: %s", form.spec.id, reason)
                form.tool.update(listed["tools"][0])
                return attrs.evolve(form, size=len(to_json(form.tool)))
        logger.warning("the tool %r is left out: %s", form.spec.id, reason)
        return None

    def page(self, method: str, key: str, items: list[Json], ctx: Any, params: Any) -> Json:
        """Return a page of ``items`` in the field ``key``, as the result of ``method``.

        An item that the protocol's models reject is left out with a warning.

        Raises `MCPError` if the cursor is invalid.
        """
        cursor = None if params is None else params.cursor
        start = 0
        if cursor is not None:
            if not cursor.isascii() or not cursor.isdigit() or int(cursor) > len(items):
                raise MCPError(
                    types.INVALID_PARAMS, f"Invalid cursor: expected a nextCursor of {method}, got {cursor!r:.100}"
                )
            start = int(cursor)
        end = start + self.config.page_size
        kept = []
        for item in items[start:end]:
            try:
                kept += fitting(method, {key: [item]}, handshake=is_handshake(ctx))[key]
            except ValidationError as error:
                logger.warning("%r is left out of %s: %s", item.get("name"), method, _first(error))
        page: Json = {**PRIVATE, key: kept}
        return page if end >= len(items) else {**page, "nextCursor": str(end)}

    # --- calling ---------------------------------------------------------------------------------

    def caller(self, ctx: Any) -> Identity | None:
        """Return the caller: over HTTP by its credentials, otherwise from the option ``identity``.

        Return ``None`` if the caller is anonymous.
        """
        request = ctx.request
        if request is None:
            return self.config.caller
        found: Identity | None = request.scope.get(CALLER)
        return found

    def principal(self, ctx: Any) -> str | None:
        """Return the id of the caller; ``None`` if the caller is anonymous."""
        caller = self.caller(ctx)
        return None if caller is None else caller.id

    async def run(
        self, ctx: Any, call: Callable[[OperationContext], Awaitable[R]], *, level: str = "debug"
    ) -> R | Json:
        """Run ``call`` with a context that has the caller, the client and the time limit of a request.

        ``level`` is the lowest level of logs to send to a client of a handshake revision.

        Returns:
            The result of ``call``; or, with revision 2026-07-28, the result that asks the client a question.

        Raises:
            CallError: ``call`` raised it.
            MCPError: the client lacks a capability that the handler needs, or the user must visit a URL first.
        """
        timeout = self.config.timeout
        deadline = None if timeout is None else (time.time() + timeout) * 1000
        client = self._client(ctx, level)
        shown = None if ctx.request is None else ctx.request.scope.get(CREDENTIALS)
        context = OperationContext(
            None, None, self.caller(ctx), deadline, metadata=_trace(ctx), client=client, credentials=shown
        )
        try:
            if isinstance(client, StatelessClient):
                return await _until_asked(client, _with_consent(client, call(context)))
            if self.config.poll_after is None:
                return await call(context)
            with self._polled(ctx, self.config.poll_after):
                return await call(context)
        except CallError as error:
            if error is client.missing and not isinstance(client, HandshakeClient):
                code = types.MISSING_REQUIRED_CLIENT_CAPABILITY
                raise MCPError(code, error.message, {"requiredCapabilities": client.required}) from error
            url = consent_url(error)
            if url is not None and isinstance(client, HandshakeClient) and client.opens_urls:
                asked = {"mode": "url", "elicitationId": uuid4().hex, "url": url, "message": error.message}
                raise MCPError(types.URL_ELICITATION_REQUIRED, error.message, {"elicitations": [asked]}) from error
            raise

    def _client(self, ctx: Any, level: str) -> Client:
        if is_handshake(ctx):
            return HandshakeClient(ctx, level)
        # A client without capabilities needs no second task: its questions fail immediately.
        client = Client(ctx)
        return StatelessClient(ctx) if client.capabilities else client

    @contextmanager
    def _polled(self, ctx: Any, after: float) -> Iterator[None]:
        """Close the stream of a call after some seconds, so that the client reconnects for the result."""
        close = ctx.close_sse_stream
        if close is None:
            yield
            return
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        timer = loop.call_later(after, lambda: tasks.append(loop.create_task(close())))
        try:
            yield
        finally:
            timer.cancel()

    def refused(self, error: CallError, operation_id: str, **data: Any) -> MCPError:
        """Return the JSON-RPC error for a failed request other than a tool's call, with ``data`` in its data."""
        masked = self.masked(error, operation_id)
        code = types.INVALID_PARAMS if error.code == ErrorCode.VALIDATION_ERROR else types.INTERNAL_ERROR
        return MCPError(code, masked.message or masked.code, {**data, "error": masked.to_wire()})

    def masked(self, error: CallError, operation_id: str) -> CallError:
        """Return an error for clients: without the parts that ``mask_errors`` and ``expose_upstream`` hide."""
        spec = self.registry.get_spec(operation_id)
        declared = () if spec is None else [definition.code for definition in spec.error_schemas]
        masked = mask_error(error, declared, mask=self.config.mask_errors, operation_id=operation_id)
        return masked if self.config.expose_upstream else without_upstream(masked)


def fitting(method: str, result: Mapping[str, Any], *, handshake: bool) -> Json:
    """Return a listing as the protocol's models serialise it. Raises `ValidationError` if they reject it."""
    version = LATEST_HANDSHAKE_VERSION if handshake else LATEST_MODERN_VERSION
    return methods.serialize_server_result(method, version, {**PRIVATE, "resultType": "complete", **result})


def _first(error: ValidationError) -> str:
    """Return the first reason why the protocol's models reject a listing, with its place."""
    found = error.errors(include_input=False, include_url=False)[0]
    return ": ".join(filter(None, [".".join(map(str, found["loc"])), found["msg"]]))


def _trace(ctx: Any) -> dict[str, str]:
    """Return the trace context of a request: from its ``_meta``, or from the headers of its HTTP request."""
    found = trace_context(ctx.meta) if ctx.meta else {}
    if found or ctx.request is None:
        return found
    for name, _ in ctx.request.scope["headers"]:  # starlette's own lookup searches all headers for each name
        if name in (b"traceparent", b"baggage"):
            return trace_context(ctx.request.headers)
    return found


def consent_url(error: CallError) -> str | None:
    """Return the URL at which the user must agree before the call can run; ``None`` if the error has none."""
    url = error.details.get("url") if isinstance(error.details, dict) else None
    is_asked = error.code == _CONSENT and isinstance(url, str) and url.startswith(("https://", "http://"))
    return url if is_asked else None


async def _with_consent(client: StatelessClient, call: Awaitable[R]) -> R:
    """Run a call. If the user must agree first, ask the user once. The client then sends the request again."""
    try:
        return await call
    except CallError as error:
        url = consent_url(error)
        if url is not None and client.opens_urls:
            await client.elicit(error.message, None, url, _CONSENT)
        raise


async def _until_asked(client: StatelessClient, call: Awaitable[R]) -> R | Json:
    running = asyncio.ensure_future(call)
    waiting = asyncio.ensure_future(client.waiting.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await asyncio.sleep(0)  # concurrent questions are asked in the same turn of the loop
        return running.result() if running.done() else client.result()
    finally:
        running.cancel()
        waiting.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
