"""The built-in operations ``operad.discover``, ``operad.list`` and ``operad.describe`` of a call handler."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from operad.access import may_list
from operad.context import OperationContext
from operad.errors import CallError, ErrorCode
from operad.failures import operation_not_found
from operad.operations import OperationSpec
from operad.transports import Link, TransportError
from operad_calls.protocol import DISCOVER

if TYPE_CHECKING:
    from operad import OperationRegistry

logger = logging.getLogger("operad.calls")

LIST, DESCRIBE = "operad.list", "operad.describe"
REMOTE = "operad.remote"
"""The key of ``{instance, operationId, via}`` in the metadata of an operation that a peer serves."""
MAX_VIA = 8
"""The maximum number of handlers that forward an operation, one after the other."""

_PAGE, _LARGEST_PAGE = 200, 1_000

Answer = Callable[[Any, OperationContext], Any]


class Listing:
    """The operations ``operad.discover``, ``operad.list`` and ``operad.describe`` of one handler.

    ``operad.list {cursor?, limit?}`` returns ``{operations, nextCursor?}`` without schemas, and ``operad.describe
    {operationId}`` returns one whole spec. Both return only operations that the caller may call. Each handler has
    its own addresses (``operad.list.<instance>``) in addition to the shared addresses.

    Args:
        registry: the registry with the operations.
        is_served: returns True for an operation that is served.
        instance: the id of the handler.
    """

    def __init__(
        self, registry: OperationRegistry, is_served: Callable[[OperationSpec], bool], instance: str
    ) -> None:
        self._registry = registry
        self._is_served = is_served
        self.instance = instance
        self.own: Mapping[str, Answer] = {
            f"{LIST}.{instance}": self._list,
            f"{DESCRIBE}.{instance}": self._describe,
        }
        self.shared: Mapping[str, Answer] = {DISCOVER: self._discover, LIST: self._list, DESCRIBE: self._describe}

    async def announce(self, link: Link) -> None:
        """Register the shared addresses. An address that the transport refuses is not served."""
        for address in (f"all:{DISCOVER}", f"op:{LIST}", f"op:{DESCRIBE}"):
            try:
                await link.register(address, None if address.startswith("all:") else "operad")
            except TransportError as error:  # a hub gives an operation to one identity
                logger.debug("%s is not served here: %s", address, error)

    def _discover(self, input: Any, context: OperationContext) -> dict[str, Any]:
        return {"instance": self.instance}

    def _list(self, input: Any, context: OperationContext) -> dict[str, Any]:
        input = input if isinstance(input, dict) else {}
        cursor, limit = input.get("cursor", ""), input.get("limit", _PAGE)
        if not isinstance(cursor, str) or not isinstance(limit, int) or limit < 1:
            got = f"cursor of type {type(cursor).__name__}, limit {limit!r:.40}"
            message = f"{LIST}: expected {{cursor?: string, limit?: integer above 0}} as input, got {got}"
            raise CallError(ErrorCode.VALIDATION_ERROR, message)
        specs = self._registry.specs()
        start = bisect_right(specs, cursor, key=lambda spec: spec.id)
        operations: list[dict[str, Any]] = []
        for spec in specs[start:]:
            if self._is_served(spec) and may_list(spec.access_control, context.identity):
                if len(operations) == min(limit, _LARGEST_PAGE):
                    return {"operations": operations, "nextCursor": operations[-1]["id"]}
                operations.append(self._wire(spec))
        return {"operations": operations}

    def _wire(self, spec: OperationSpec) -> dict[str, Any]:
        """Return a spec without schemas. For an operation of a peer, add the handlers that forward it."""
        wire = spec.to_wire(schemas=False)
        if REMOTE in spec.metadata:
            wire["via"] = [*self.way_of(spec), self.instance]
        return wire

    @staticmethod
    def way_of(spec: OperationSpec) -> tuple[str, ...]:
        """Return the instances of the handlers that forward an operation; ``()`` if no peer serves it."""
        remote = spec.metadata.get(REMOTE)
        via = remote.get("via") if isinstance(remote, Mapping) else None
        return tuple(item for item in via if isinstance(item, str)) if isinstance(via, (list, tuple)) else ()

    def _describe(self, input: Any, context: OperationContext) -> dict[str, Any]:
        operation_id = input.get("operationId") if isinstance(input, dict) else None
        if not isinstance(operation_id, str):
            message = f"{DESCRIBE}: expected a string as operationId, got {type(operation_id).__name__}"
            raise CallError(ErrorCode.VALIDATION_ERROR, message)
        spec = self._registry.get_spec(operation_id)
        if spec is None or not self._is_served(spec) or not may_list(spec.access_control, context.identity):
            raise operation_not_found(operation_id)
        return spec.to_wire()
