"""Helpers of the transport suite: a peer that sends raw events, and the operations that tests call."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from copy import deepcopy
from itertools import combinations
from typing import Any, ClassVar

import attrs

from operad import OperationRegistry
from operad.access import AccessControl, Identity
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError
from operad.operations import OperationSpec
from operad.transports import (
    Capabilities,
    Delivery,
    Event,
    Link,
    LinkState,
    OnEvent,
    OnLink,
    Transport,
    TransportError,
)
from operad_calls import CallHandler, PendingRequestMap, protocol
from operad_testing._running import Body, run, tests_with
from operad_testing.transport.frames import BY_HAND, CheckedFrames

SOON = 20.0
"""The time limit, in seconds, for effects that should be immediate."""


class Participant:
    """A link that is used without a call map or call handler. It records the events that it receives."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, Delivery]] = []
        self.states: list[LinkState] = []
        self.epochs: list[int] = []
        self.link: Link
        self._changed = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, transport: Transport) -> AsyncIterator[Participant]:
        """Open a link of a transport, yield its participant, and close the link."""
        made = cls()
        made.link = await transport.open(made.on_event, made.on_link)
        try:
            yield made
        finally:
            await made.link.close()

    def on_event(self, event: Event, delivery: Delivery) -> None:
        """Record an event of the link, and acknowledge a request to the transport."""
        self.events.append((event, delivery))
        if event["type"] == protocol.REQUESTED and delivery.done is not None:
            delivery.done()
        self._changed.set()

    def on_link(self, state: LinkState, epoch: int) -> None:
        """Record a state of the link and the epoch of its connection."""
        self.states.append(state)
        self.epochs.append(epoch)

    def of(self, type_: str) -> list[dict[str, Any]]:
        """Return the payloads of all events of a type, in the order of arrival."""
        return [event["payload"] for event, _ in self.events if event["type"] == type_]

    async def wait_for(self, type_: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until ``count`` events of a type have arrived, and return the payloads of all that have arrived.

        Raises `TimeoutError` after 20 s (`SOON`).
        """
        async with asyncio.timeout(SOON):
            while len(self.of(type_)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(type_)

    async def send(self, to: str, type_: str, **payload: Any) -> str | None:
        """Send an event with this payload to an address. Return the result of `Link.send`."""
        return await self.link.send(to, {"type": type_, "id": BY_HAND, "payload": payload})

    async def request(self, operation_id: str, request_id: str, input: Any = None, **payload: Any) -> str:
        """Send a request. ``payload`` has further fields.

        Return the address for later events about it, such as an abort; ``""`` if the transport does not know it.
        """
        values: dict[str, Any] = {
            "input": {} if input is None else input,
            "replyTo": self.link.inbox,
            "timeoutMs": 20_000,
            **payload,
        }
        values.setdefault("deadline", math.ceil(time.time() * 1000 + values["timeoutMs"]))
        to = f"op:{operation_id}"
        follow = await self.send(to, protocol.REQUESTED, requestId=request_id, operationId=operation_id, **values)
        return follow or ""


@attrs.define(eq=False)
class Served:
    """A record of the calls of the kit's operations, and the gate for which some of them wait."""

    runs: list[str] = attrs.field(factory=list)
    """The inputs of ``kit.work``, in order."""
    started: int = 0
    """The number of calls of ``kit.wait`` and ``kit.count`` that began."""
    ended: int = 0
    """The number of these calls that ended, in any way."""
    yielded: int = 0
    """The number of items that streams have made."""
    gate: asyncio.Event = attrs.field(factory=asyncio.Event)
    """The event for which ``kit.wait`` and some streams wait."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true. Raises `TimeoutError` after 20 s (`SOON`)."""
        async with asyncio.timeout(SOON):
            while not condition():  # noqa: ASYNC110  # conditions of all kinds, some of other processes
                await asyncio.sleep(0.005)


@attrs.frozen
class PigeonMeta:
    """Metadata of a kind that no plugin declares."""

    source: ClassVar[str] = "pigeon"

    grams: int


def kit_registry(  # noqa: C901  # a list of small handlers
    served: Served, extra: tuple[str, ...] = (), *, idempotent: bool = False
) -> OperationRegistry:
    """Return a registry with the operations that the kit calls.

    Args:
        served: the object in which the operations record their calls.
        extra: ids of further operations, which return their own id.
        idempotent: whether ``kit.work`` is declared idempotent, which lets brokers store its requests.
    """
    registry = OperationRegistry()

    def add(name: str, type: str, handler: Callable[..., Any], **spec: Any) -> None:
        registry.register(OperationSpec(namespace="kit", name=name, type=type, **spec), handler)

    async def echo(input: Any, context: OperationContext) -> Any:
        await asyncio.sleep(input.get("delay", 0))
        return input.get("value")

    async def work(input: Any, context: OperationContext) -> Any:
        served.runs.append(input["name"])
        await asyncio.sleep(0)
        return input["name"]

    async def wait(input: Any, context: OperationContext) -> str:
        served.started += 1
        try:
            await served.gate.wait()
        finally:
            served.ended += 1
        return "waited"

    async def nested(input: Any, context: OperationContext) -> Any:
        return (await context.env.kit.wait({})).data

    async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
        served.started += 1
        try:
            for number in range(input["to"]):
                served.yielded += 1
                yield number
            if input.get("then") == "fail":
                raise CallError("BROKEN", "it broke", input.get("details", {"after": input["to"]}))
            if input.get("then") == "wait":
                await served.gate.wait()
        finally:
            served.ended += 1

    async def fail(input: Any, context: OperationContext) -> None:
        if input.get("declared"):
            raise CallError("LOST_SHOE", "there is one shoe only", input.get("details", {"shoes": 1}))
        raise ValueError("the secret is 42")

    async def whoami(input: Any, context: OperationContext) -> Any:
        return None if context.identity is None else context.identity.id

    async def context_of(input: Any, context: OperationContext) -> Any:
        return {
            "parent": context.parent_request_id,
            "deadline": context.deadline,
            "trace": dict(context.metadata),
        }

    async def unencodable(input: Any, context: OperationContext) -> Any:
        return {"nan": math.nan, "set": {1}, "key": {1: 2}, "bytes": [b"x"]}[input["what"]]

    async def big(input: Any, context: OperationContext) -> Any:
        return "x" * input["size"]

    async def bigs(input: Any, context: OperationContext) -> AsyncIterator[str]:
        for _ in range(input.get("count", 1)):
            served.yielded += 1
            yield "x" * input["size"]

    async def blames(input: Any, context: OperationContext) -> Any:
        raise CallError(input["code"], "of another call", {"sent": False})

    async def pigeon(input: Any, context: OperationContext) -> ResponseEnvelope[str]:
        return ResponseEnvelope("coo", PigeonMeta(grams=420))

    async def pigeons(input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[str]]:
        yield ResponseEnvelope("coo", PigeonMeta(grams=420))

    add("blames", "mutation", blames)
    add("pigeon", "mutation", pigeon)
    add("pigeons", "subscription", pigeons)
    add("echo", "query", echo)
    add("work", "mutation", work, idempotent=idempotent)
    add("charge", "mutation", work)
    add("wait", "query", wait)
    add("nested", "query", nested)
    add("count", "subscription", count)
    add("fail", "mutation", fail)
    add("whoami", "query", whoami)
    add("context", "query", context_of)
    add("guarded", "query", whoami, access_control=AccessControl(required_scopes=["kit"]))
    add("unencodable", "query", unencodable)
    add("big", "query", big)
    add("bigs", "subscription", bigs)
    for operation_id in extra:
        namespace, _, name = operation_id.partition(".")

        async def own_id(input: Any, context: OperationContext, answer: str = operation_id) -> str:
            return answer

        registry.register(OperationSpec(namespace=namespace, name=name, type="query"), own_id)
    return registry


class Repeating:
    """A transport that redelivers each request, as a broker does after the loss of a consumer.

    The second delivery is marked as redelivered.

    Args:
        transport: the transport that delivers each request once.
        first: whether the first delivery arrives as well. If False, only the second one arrives, as if the first
            consumer was lost.
    """

    def __init__(self, transport: Transport, *, first: bool = True) -> None:
        self._transport = transport
        self._first = first
        self.capabilities = attrs.evolve(transport.capabilities, redelivers=True)

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Open a link that redelivers each request for an operation of the namespace ``kit``."""

        def twice(event: Event, delivery: Delivery) -> None:
            if event["type"] != protocol.REQUESTED or not event["payload"]["operationId"].startswith("kit."):
                on_event(event, delivery)
                return
            if self._first:
                on_event(deepcopy(event), delivery)
            on_event(event, attrs.evolve(delivery, redelivered=True))

        return await self._transport.open(twice, on_link)


class Kit:
    """The transport of one test, with helpers that make call handlers, call maps and raw links on it.

    `wrong` collects the errors of delivered events that do not match the schemas of the call protocol.
    """

    def __init__(self, transport: Transport, *, idempotent: bool = False) -> None:
        self.wrong: list[str] = []
        self.transport = transport
        self._checked: Transport = CheckedFrames(transport, self.wrong)
        self.served = Served()
        self._idempotent = idempotent

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the transport."""
        return self.transport.capabilities

    @property
    def authenticating(self) -> bool:
        """Whether the transport reports the true sender of each event."""
        return self.capabilities.same_process or self.capabilities.authenticates_peer

    def serving(self, served: Served | None = None, extra: tuple[str, ...] = (), **options: Any) -> CallHandler:
        """Return a call handler for the kit's operations. ``options`` are those of `CallHandler`."""
        return CallHandler(self.registry(served, extra), self._checked, **options)

    def registry(self, served: Served | None = None, extra: tuple[str, ...] = ()) -> OperationRegistry:
        """Return a registry with the kit's operations, see `kit_registry`."""
        return kit_registry(served or self.served, extra, idempotent=self._idempotent)

    def calling(self, **options: Any) -> PendingRequestMap:
        """Return a call map on the transport. ``options`` are those of `PendingRequestMap`."""
        return PendingRequestMap(self._checked, **options)

    def participant(self) -> AbstractAsyncContextManager[Participant]:
        """Return a context with a `Participant` on the transport."""
        return Participant.open(self._checked)

    async def encodes(self, calls: PendingRequestMap) -> bool:
        """Return True if the transport encodes events as JSON, so that a tuple comes back as a list."""
        return isinstance((await calls.call("kit.echo", {"value": (1, 2)})).data, list)


class TransportSuite:
    """The base class of the parts of `TransportConformance`, with the methods to override."""

    idempotent_work = False
    """Whether the mutation ``kit.work`` is declared idempotent, so that a broker may store its requests."""

    def transport(self) -> AbstractAsyncContextManager[Transport]:
        """Return a context with a transport to a bus, hub or broker that only this test uses."""
        raise NotImplementedError("the suite needs a transport; override transport()")

    def authenticated(self, transport: Transport, identity: Identity) -> Transport:
        """Return a transport to the same hub whose links are authenticated as ``identity``.

        Override this if `Capabilities.authenticates_peer` is declared. The suite uses the ids ``alice``, with the
        scope ``kit``, and ``bob``, without it.
        """
        raise NotImplementedError("the transport declares authenticates_peer; override authenticated()")

    async def sever(self, transport: Transport) -> None:
        """Cut all connections of the transport's links immediately, as a lost network would. They may reconnect.

        Do not override this if links cannot be cut: the suite then skips its tests of lost connections.
        """
        raise NotImplementedError


def _run(suite: TransportSuite, body: Body) -> None:
    async def main() -> None:
        async with suite.transport() as transport:
            kit = Kit(transport, idempotent=suite.idempotent_work)
            try:
                await body(kit)
            finally:
                kit.served.gate.set()
            assert not kit.wrong, f"frames that the protocol's schemas do not allow: {kit.wrong[:5]}"

    run(main())


with_kit = tests_with(_run)
"""Decorator for the tests of a `TransportSuite`: each gets a `Kit` on its own transport."""


async def error_of(awaitable: Any) -> CallError:
    """Return the `CallError` that an awaitable raises. Raises `AssertionError` if the awaitable returns."""
    try:
        result = await awaitable
    except CallError as error:
        return error
    raise AssertionError(f"expected a CallError, got {result!r}")


def data_of(responded: dict[str, Any]) -> Any:
    """Return the data of a response, from its payload. The output in it is an envelope or its JSON form."""
    output = responded["output"]
    return output.data if isinstance(output, ResponseEnvelope) else output["data"]


def unguessable(names: list[str]) -> None:
    """Raise `AssertionError` unless any two names differ in at least 12 characters.

    Otherwise one name reveals another, such as names with a common prefix and a counter.
    """
    for one, two in combinations(names, 2):
        differing = sum(a != b for a, b in zip(one, two, strict=False))
        assert differing >= 12, f"one of these can be guessed from the other: {one}, {two}"


async def whatever(awaitable: Any) -> None:
    """Await the sending of a forged event. Ignore `TransportError`, because the transport may reject the event."""
    with suppress(TransportError):
        await awaitable
