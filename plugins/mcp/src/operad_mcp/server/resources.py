"""The resources of a served registry: its operations, and the resources of MCP servers behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from operad import CallError, ErrorCode, OperationContext, OperationSpec
from operad.plugin import may_list
from operad_mcp.server.door import PRIVATE, Door
from operad_mcp.server.kinds import Json, Upstream, described, mcp_metadata
from operad_mcp.server.results import resource_contents, within

logger = logging.getLogger("operad.mcp")

_MAX_KNOWN = 10_000
"""The maximum number of resources that are remembered with the server that listed them."""
_DESCRIBED = ("name", "title", "description", "mimeType", "size", "icons", "annotations", "_meta")


class Resources:
    """The handlers of requests for resources and resource templates."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._known: dict[str, str] = {}  # URI -> id of the operation that lists it

    async def listed(self, ctx: Any, params: Any) -> Json:
        """Handle ``resources/list``: return a page of the resources that the caller may read.

        Servers that cannot be reached are left out. Raises `MCPError` if the cursor is invalid.
        """
        listing, identity = self._door.listing, self._door.caller(ctx)
        found = [
            _described(spec, {"uri": uri})
            for uri, spec in sorted(listing.resources.items())
            if may_list(spec.access_control, identity)
        ]
        found += await self._of_others(ctx, listing.upstreams)
        unique = {item["uri"]: item for item in reversed(found)}  # the first one of a URI is used
        items = [item for item in found if unique[item["uri"]] is item]
        return self._door.page("resources/list", "resources", items, ctx, params)

    async def templates(self, ctx: Any, params: Any) -> Json:
        """Handle ``resources/templates/list``: return a page of the templates that the caller may use.

        Raises `MCPError` if the cursor is invalid.
        """
        identity = self._door.caller(ctx)
        items = [
            _described(spec, {"uriTemplate": template})
            for template, spec in sorted(self._door.listing.templates.items())
            if may_list(spec.access_control, identity)
        ]
        return self._door.page("resources/templates/list", "resourceTemplates", items, ctx, params)

    async def read(self, ctx: Any, params: Any) -> Json:
        """Handle ``resources/read``: return the contents of a resource.

        Raises `MCPError` if the resource does not exist or cannot be read.
        """
        uri = str(params.uri)
        spec, input, mime = await self._reader(ctx, uri)

        async def call(context: OperationContext) -> Json:
            envelope = await self._door.registry.execute(spec.id, input, context)
            contents = resource_contents(envelope, uri, mime)
            return within({**PRIVATE, "contents": contents}, self._door.config.result_bytes)

        try:
            answer = await self._door.run(ctx, call)
        except CallError as error:
            raise self._refused(error, uri, spec.id) from error
        return answer

    async def upstream_of(self, ctx: Any, uri: str) -> Upstream | None:
        """Return the server behind the registry that listed a resource.

        If no server is known to have listed it, return the only server behind the registry, or ``None`` if there
        is not exactly one. For a resource that is an operation of the registry, return ``None``.
        """
        listing = self._door.listing
        if uri in listing.resources:
            return None
        for template, spec in listing.templates.items():
            if _values(template, uri) is not None:
                return self._behind(spec)
        return await self._lister(ctx, uri)

    def target(self, uri: str) -> OperationSpec | None:
        """Return the operation whose URI or URI template fits ``uri``; ``None`` if the registry has none."""
        listing = self._door.listing
        if uri in listing.resources:
            return listing.resources[uri]
        return next(
            (spec for template, spec in listing.templates.items() if _values(template, uri) is not None), None
        )

    # --- reading ---------------------------------------------------------------------------------

    async def _reader(self, ctx: Any, uri: str) -> tuple[OperationSpec, Json, str | None]:
        """Return the operation that reads a URI, its input, and the media type from the listing."""
        listing = self._door.listing
        spec = listing.resources.get(uri)
        if spec is not None:
            return spec, {}, _mime(spec)
        for template, candidate in listing.templates.items():
            values = _values(template, uri)
            if values is not None:
                upstream = self._behind(candidate)
                if upstream is not None:
                    return upstream.read, {"uri": uri}, None
                return candidate, values, _mime(candidate)
        upstream = await self._lister(ctx, uri)
        if upstream is None:
            raise _not_found(uri)
        return upstream.read, {"uri": uri}, None

    def _behind(self, spec: OperationSpec) -> Upstream | None:
        """Return the server that listed a template, which reads every URI made from the template."""
        prefix = spec.id.partition("resources.templates.")[0]
        return next(
            (one for one in self._door.listing.upstreams if one.read.id == f"{prefix}resources.read"), None
        )

    async def _lister(self, ctx: Any, uri: str) -> Upstream | None:
        """Return the server behind the registry that listed a URI, else the only server, else None."""
        upstreams = self._door.listing.upstreams
        if uri not in self._known and len(upstreams) > 1:
            await self._of_others(ctx, upstreams)
        known = self._known.get(uri)
        if known is None:
            return upstreams[0] if len(upstreams) == 1 else None
        return next((upstream for upstream in upstreams if upstream.list.id == known), None)

    async def _of_others(self, ctx: Any, upstreams: Sequence[Upstream]) -> list[Json]:
        """Return the resources of the servers behind the registry. Skip servers that cannot be reached."""
        identity = self._door.caller(ctx)
        asked = [upstream for upstream in upstreams if may_list(upstream.list.access_control, identity)]
        answers = await asyncio.gather(*(self._listed_by(ctx, upstream) for upstream in asked))
        return [item for items in answers for item in items]

    async def _listed_by(self, ctx: Any, upstream: Upstream) -> list[Json]:
        async def call(context: OperationContext) -> Any:
            return (await self._door.registry.execute(upstream.list.id, {}, context)).data

        try:
            data = await self._door.run(ctx, call)
        except CallError as error:
            logger.warning("%s cannot be listed: %s", upstream.list.id, error)
            return []
        items = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        for item in items:
            if isinstance(item.get("uri"), str) and len(self._known) < _MAX_KNOWN:
                self._known.setdefault(item["uri"], upstream.list.id)
        return [item for item in items if isinstance(item.get("uri"), str)]

    def _refused(self, error: CallError, uri: str, operation_id: str) -> MCPError:
        details = error.details if isinstance(error.details, dict) else {}
        if error.code == ErrorCode.OPERATION_NOT_FOUND or details.get("jsonrpcCode") in (-32_602, -32_002):
            return _not_found(uri)
        return self._door.refused(error, operation_id, uri=uri)


@lru_cache(maxsize=512)
def _parsed(template: str) -> UriTemplate | None:
    try:
        return UriTemplate.parse(template)
    except InvalidUriTemplate:
        return None


def _values(template: str, uri: str) -> Json | None:
    """Return the values with which a template expands to a URI; None if it cannot expand to it."""
    parsed = _parsed(template)
    return None if parsed is None else parsed.match(uri)


def _described(spec: OperationSpec, place: Json) -> Json:
    return {"name": spec.name, **described(spec, _DESCRIBED), **place}


def _mime(spec: OperationSpec) -> str | None:
    found = mcp_metadata(spec).get("mimeType")
    return found if isinstance(found, str) else None


def _not_found(uri: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
