"""The part of a registry that its views share: looking up operations and calling them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from operad.context import OperationContext
from operad.deadlines import earlier
from operad.envelopes import ResponseEnvelope
from operad.functions.handles import Browsable
from operad.functions.typed_calls import TypedCalls, with_key
from operad.operations import Handler, Operation, OperationSpec, Pages
from operad.registry.catalogue import Catalogue
from operad.registry.execution import Execution, watched
from operad.subscriptions import Subscription


class RegistryBase(TypedCalls, Browsable):
    """The base of registries and views: looks up operations and calls them."""

    _catalogue: Catalogue
    _execution: Execution

    # --- looking up ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._catalogue.entries)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._catalogue.entries

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """Return the spec of an operation, or ``None`` if the id is unknown."""
        entry = self._catalogue.entries.get(operation_id)
        return None if entry is None else entry.spec

    def get_handler(self, operation_id: str) -> Handler | None:
        """Return the handler of an operation, or ``None`` if the id has no handler."""
        return self._catalogue.handler(operation_id)

    def specs(self) -> Sequence[OperationSpec]:
        """Return all specs, sorted by id; a read-only snapshot."""
        return self._catalogue.specs()

    def search(self, query: str, limit: int = 10) -> list[OperationSpec]:
        """Return at most ``limit`` specs that match ``query``, best first; operad-search improves the ranking.

        The first search makes the index, which takes seconds for 50,000 operations. In an event loop, await
        `prepare_search` before the first search.
        """
        return self._catalogue.search(query, limit)

    async def prepare_search(self) -> None:
        """Make the index of `search` without blocking the event loop; do nothing if the index exists."""
        await self._catalogue.prepare_search()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback``, which must not raise, after each change. Call the returned function to stop."""
        return self._catalogue.watch(lambda _: callback())

    # --- calling ---------------------------------------------------------------------------------

    async def execute(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation and return its envelope; for a subscription, return the first one and close it.

        Args:
            operation_id: ``namespace.name``, or an `Operation` of that id.
            input: the operation's input, usually a dict; ``None`` means ``{}``.
            context: the caller and the deadline; ``OperationContext(trusted=True)`` for the application itself. In
                a handler's context, the call is nested, with the identity, trust and deadline of the handler.
            timeout: seconds; the context's deadline may end the call sooner.
            idempotency_key: the same key for this call and its repetitions; see `FirstResults`.

        Raises:
            CallError: the call failed. A cancellation of the calling task is raised unchanged.
            RuntimeError: the registry is in use in another event loop.
        """
        execution = self._execution
        if context is None and idempotency_key is None:  # what `new_call` does for most calls, inline
            request_id = f"{execution.id_prefix}{execution.next_id()}"
            call = OperationContext(request_id, None, None, None, execution.target)
        else:
            call = execution.new_call(context if idempotency_key is None else with_key(context, idempotency_key))
        if operation_id.__class__ is not str and isinstance(operation_id, Operation):
            operation_id = execution.id_of(operation_id)
        if timeout is not None:
            call.deadline = earlier(call.deadline, timeout)
        if execution.observed and (watch := execution.watch(operation_id, input, call)) is not None:
            with watch:
                envelope = await execution.run(operation_id, input, call)
                watch.items = 1
                return envelope
        return await execution.run(operation_id, input, call)

    def subscribe(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe to an operation; a query or mutation yields one envelope.

        The arguments are those of `execute` without ``idempotency_key``; ``timeout`` limits the wait for each
        item. Iterating the subscription raises `CallError` if the call fails.
        """
        execution = self._execution
        call = execution.new_call(context)
        if isinstance(operation_id, Operation):
            operation_id = execution.id_of(operation_id)
        watch = execution.watch(operation_id, input, call, is_stream=True) if execution.observed else None
        stream = execution.stream(operation_id, input, call, timeout)
        return Subscription(stream) if watch is None else Subscription(watched(stream, watch), call.report)

    def pages(self, operation_id: str) -> Pages | None:
        """Return the pagination of an operation, or ``None`` if its source does not define one; for `paginate`."""
        entry = self._catalogue.entries.get(operation_id)
        return None if entry is None else entry.pages

    async def download(
        self, operation_id: str, input: Any = None, context: OperationContext | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a result as they arrive, for results too large for memory.

        Raises `CallError` if the call fails, or if the operation or an interceptor does not support downloads.
        """
        execution = self._execution
        call = execution.new_call(context)
        stream = execution.stream(operation_id, input, call, None, in_pieces=True)
        watch = execution.watch(operation_id, input, call, is_stream=True) if execution.observed else None
        async with aclosing(stream if watch is None else watched(stream, watch)) as pieces:
            async for piece in pieces:
                yield piece.data
