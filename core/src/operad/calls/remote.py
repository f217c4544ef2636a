"""Operations that peers serve, as operations here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from operad.calls.listing import CHANGED, DESCRIBE, DISCOVER, LIST, REMOTE
from operad.calls.map import PendingRequestMap
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, OperadError, SourceError
from operad.operations import Operation, OperationSpec, OperationType
from operad.sources import SourceSession
from operad.transports import Delivery, Event, LinkState, Transport, TransportError

if TYPE_CHECKING:
    from operad.sources import PluginsLike

logger = logging.getLogger("operad.calls")

_SETTLE = 0.1
"""Seconds to wait after a peer's change before asking again: changes come in flocks."""
_MAX_PAGES = 1_000


async def from_remote(
    transport: Transport,
    namespace: str | None = None,
    *,
    plugins: PluginsLike | None = None,
    wait: float = 0.5,
    timeout: float = 30.0,
) -> RemoteSession:
    """Turn what the peers of a transport serve into operations here.

    The session follows the peers: its operations change when theirs do. Listed without schemas, an operation
    is described when it is first used. Access control is kept on both sides: peers list and run what this
    process's own identity may call, and the registry checks its callers against the same requirements.

    Args:
        transport: where the peers are.
        namespace: put in front of the ids (``math.add`` becomes ``<namespace>.math.add``); ``None`` keeps them.
        plugins: whose envelope kinds answers may have.
        wait: seconds to wait for peers to answer, where the transport does not know how many there are.
        timeout: seconds that a call may take if it does not say.

    Raises:
        SourceError: the transport cannot be reached.
    """
    session = RemoteSession(transport, namespace, plugins, wait, timeout)
    try:
        await session.open()
    except TransportError as error:
        raise SourceError(f"the peers cannot be reached: {error}") from error
    return session


@attrs.frozen
class _Remote:
    """An operation of a peer."""

    instance: str
    operation_id: str
    described: bool = False


class RemoteSession(SourceSession):
    """The operations of the peers of a transport, for as long as it is open."""

    def __init__(
        self, transport: Transport, namespace: str | None, plugins: PluginsLike | None, wait: float, timeout: float
    ) -> None:
        super().__init__()
        self._calls = _FollowingCalls(transport, self._changed_there, plugins=plugins, timeout=timeout)
        self._namespace = namespace
        self._wait = wait
        self._remotes: dict[str, _Remote] = {}
        self._describing: dict[str, asyncio.Task[None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._again = False

    async def open(self) -> None:
        """Connect, and learn what there is. Raises `TransportError`."""
        await self._calls.open()
        try:
            await self._calls.follow()
            await self.refresh()
        except BaseException:
            await self._calls.aclose()
            raise

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        tasks = {*self._describing.values()} | ({self._asking} if self._asking is not None else set())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._calls.aclose()

    async def refresh(self) -> None:
        """Ask all peers what they serve. Happens by itself when they change or come back."""
        try:
            answers = await self._calls.ask_all(DISCOVER, DISCOVER, wait=self._wait)
        except CallError as error:
            raise TransportError(str(error)) from error
        instances = [answer.get("instance") for answer in answers if isinstance(answer, dict)]
        listings = await asyncio.gather(*(self._list(item) for item in instances if isinstance(item, str)))
        found: dict[str, Operation[..., Any]] = {}
        remotes: dict[str, _Remote] = {}
        for instance, specs in listings:
            for wire in specs:
                operation = self._operation(instance, wire)
                if operation is not None and operation.id not in found:
                    found[operation.id] = operation
                    remotes[operation.id] = _Remote(instance, wire["id"])
        known = {operation.id: operation for operation in self.operations}
        for operation_id, remote in remotes.items():
            old = self._remotes.get(operation_id)
            if old is not None and old.instance == remote.instance and old.described:
                found[operation_id], remotes[operation_id] = known[operation_id], old
        self._remotes = remotes
        self.changed([operation for _, operation in sorted(found.items())])

    async def _list(self, instance: str) -> tuple[str, list[Mapping[str, Any]]]:
        """All that one peer lists; nothing of a peer that fails."""
        specs: list[Mapping[str, Any]] = []
        input: dict[str, Any] = {}
        try:
            for _ in range(_MAX_PAGES):
                page = (await self._calls.call(f"{LIST}.{instance}", input, retry=True)).data
                specs.extend(item for item in page["operations"] if isinstance(item, dict))
                if "nextCursor" not in page:
                    break
                input = {"cursor": page["nextCursor"]}
        except (CallError, KeyError, TypeError) as error:
            logger.warning("peer %s does not list its operations: %s", instance, error)
        return instance, specs

    def _operation(self, instance: str, wire: Mapping[str, Any]) -> Operation[..., Any] | None:
        try:
            spec = OperationSpec.from_wire(wire)
            metadata = {**spec.metadata, REMOTE: {"instance": instance, "operationId": spec.id}}
            if self._namespace is None:
                spec = attrs.evolve(spec, metadata=metadata)
            else:
                spec = attrs.evolve(spec, metadata=metadata, namespace=self._namespace, name=spec.id)
        except (OperadError, TypeError, ValueError) as error:  # a peer may send anything
            logger.warning("peer %s offers an operation that cannot be used: %s", instance, error)
            return None
        if spec.type is OperationType.SUBSCRIPTION:
            return Operation(spec, self._streaming(spec.id, wire["id"]))
        return Operation(spec, self._calling(spec, wire["id"]))

    def _calling(self, spec: OperationSpec, remote_id: str) -> Any:
        retry = spec.is_repeatable

        async def call(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            await self.describe(spec.id)
            try:
                return await self._calls.call(remote_id, input, retry=retry, **_options(context))
            except CallError as error:
                error.forwarded = True  # what is said of this call is true of the operation's own
                raise

        return call

    def _streaming(self, operation_id: str, remote_id: str) -> Any:
        async def stream(input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[Any]]:
            await self.describe(operation_id)
            async with self._calls.subscribe(remote_id, input, **_options(context)) as items:
                try:
                    async for envelope in items:
                        yield envelope
                except CallError as error:
                    error.forwarded = True
                    raise

        return stream

    async def describe(self, operation_id: str) -> None:
        """Learn the schemas of an operation, once; a peer that does not tell them is logged."""
        remote = self._remotes.get(operation_id)
        if remote is None or remote.described:
            return
        # A task of its own: whoever comes meanwhile waits for it, and a call that is given up does not end it.
        task = self._describing.get(operation_id)
        if task is None:
            task = self._describing[operation_id] = asyncio.create_task(self._describe(operation_id, remote))
            task.add_done_callback(lambda _: self._describing.pop(operation_id))
        await asyncio.wait({task})

    async def _describe(self, operation_id: str, remote: _Remote) -> None:
        spec = None
        try:
            address = f"{DESCRIBE}.{remote.instance}"
            wire = (await self._calls.call(address, {"operationId": remote.operation_id}, retry=True)).data
            spec = OperationSpec.from_wire(wire)
        except (CallError, OperadError, TypeError, ValueError) as error:
            logger.warning("%s cannot be described: %s", operation_id, error)
        if self._remotes.get(operation_id) != remote:
            return  # another peer's by now
        self._remotes[operation_id] = attrs.evolve(remote, described=True)
        if spec is None:
            return
        self.changed([_with_schemas(item, spec) if item.id == operation_id else item for item in self.operations])

    def _changed_there(self) -> None:
        """A peer changed, or the connection is back: ask again, once for a whole flock of changes."""
        self._again = True
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_again())

    async def _ask_again(self) -> None:
        while self._again:
            await asyncio.sleep(_SETTLE)
            self._again = False
            try:
                await self.refresh()
            except TransportError as error:  # asked again when the link is up
                logger.debug("peers do not answer: %s", error)


class _FollowingCalls(PendingRequestMap):
    """A call map that notices when peers change."""

    def __init__(self, transport: Transport, on_change: Any, **options: Any) -> None:
        super().__init__(transport, **options)
        self._on_change = on_change

    async def follow(self) -> None:
        """Hear of changes."""
        assert self._link is not None
        await self._link.register(f"all:{CHANGED}")

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        if event["type"] == CHANGED:
            self._on_change()
        else:
            super()._on_event(event, delivery)

    def _on_link(self, state: LinkState, epoch: int) -> None:
        super()._on_link(state, epoch)
        if state == "up" and epoch > 1:
            self._on_change()


def _options(context: OperationContext) -> dict[str, Any]:
    """What of a context goes along with a call to a peer."""
    trace = context.metadata.get("traceparent")
    return {
        "deadline": context.deadline,
        "identity": context.identity,
        "parent_request_id": context.request_id,
        "traceparent": trace if isinstance(trace, str) else None,
    }


def _with_schemas(operation: Operation[..., Any], described: OperationSpec) -> Operation[..., Any]:
    spec = attrs.evolve(
        operation.spec,
        input_schema=described.input_schema,
        output_schema=described.output_schema,
        error_schemas=described.error_schemas,
    )
    return attrs.evolve(operation, spec=spec)
