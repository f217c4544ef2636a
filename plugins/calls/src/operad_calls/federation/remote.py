"""The source of operations that peers serve over a transport."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import attrs

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode, OperadError, SourceError
from operad.operations import Operation, OperationSpec, OperationType
from operad.sources import PluginsLike, SourceSession
from operad.transports import LinkState, Transport, TransportError
from operad.words import in_words
from operad_calls.calling.map import PendingRequestMap, Signer
from operad_calls.federation.offers import Offer, offer_of, operation_of, stricter
from operad_calls.protocol import CHANGED, DISCOVER
from operad_calls.reports import Reports
from operad_calls.requests import TRACE
from operad_calls.serving.listing import DESCRIBE, LIST
from operad_calls.settings import CallSettings
from operad_calls.tapping import Passed, tap

logger = logging.getLogger("operad.calls")

_SETTLE = 0.2
"""Seconds between two updates, because many changes usually arrive together."""
_DESCRIBING = 1.0
"""Seconds in which an instance must describe an operation before another instance is asked."""
_DESCRIBE_AGAIN = 30.0
"""Seconds after which an operation that no peer described is described again."""
_MAX_PAGES = 1_000
_GONE = (ErrorCode.NO_RESPONDERS, ErrorCode.OPERATION_NOT_FOUND)


async def from_remote(
    transport: Transport,
    namespace: str | None = None,
    *,
    plugins: PluginsLike | None = None,
    wait: float = 0.5,
    timeout: float | None = None,
    sign: Signer | None = None,
    settings: CallSettings | None = None,
) -> RemoteSession:
    """Turn the operations that peers serve into operations of this process.

    The session follows the peers: its operations change when those of a peer change. Operations are listed
    without schemas, which are loaded when an operation is first used. Access control is enforced on both sides:
    peers list and run the operations that the identity of this process may call, and the registry checks its
    callers against the same requirements. If the transport knows which peer serves which operation, a peer can
    list only its own operations. Otherwise, if the listings of two peers differ, the requirements of both apply.

    Args:
        transport: the transport to the peers.
        namespace: a prefix of the ids (``math.add`` becomes ``<namespace>.math.add``); default: no prefix.
        plugins: the plugins with the envelope kinds of responses; default: the installed plugins.
        wait: seconds to wait for the responses of peers. The wait ends early if the transport knows that all peers
            have responded. The operations of a peer that responds later are added then.
        timeout: the default timeout of a call, in seconds; default: 30.
        sign: signs delegations, so that peers know on whose behalf a call is made; see `PendingRequestMap`.
        settings: the bounds of the calls.

    Raises:
        SourceError: the transport cannot be reached.
        ValueError: ``timeout`` is not valid.
    """
    given = (settings or CallSettings()).updated(timeout=timeout)
    session = RemoteSession(transport, namespace, plugins, wait, given, sign)
    try:
        await session.open()
    except TransportError as error:
        raise SourceError(f"remote: the peers cannot be reached: {error}") from error
    return session


class RemoteSession(SourceSession):
    """A source session with the operations that peers serve over a transport; see `from_remote`."""

    def __init__(
        self,
        transport: Transport,
        namespace: str | None,
        plugins: PluginsLike | None,
        wait: float,
        settings: CallSettings,
        sign: Signer | None = None,
    ) -> None:
        super().__init__()
        tapped = tap(transport, self._see, self._see_link)
        self._calls = PendingRequestMap(tapped, plugins=plugins, settings=settings, sign=sign, observed=False)
        self._reports = Reports(logger)
        self._namespace = namespace
        self._wait = wait
        self._listings: dict[str, dict[str, Offer]] = {}
        """The offers of each instance, by the ids of the instance."""
        self._offers: dict[str, Offer] = {}
        """The offer of each operation, by its id here."""
        self._made: dict[str, Operation[..., Any]] = {}
        self._undescribed: dict[str, float] = {}
        self._describing: dict[str, asyncio.Task[None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._changed: set[str | None] = set()
        """The instances that have changed since they were last listed; ``None`` represents an unknown one."""
        self._told = 0.0
        """When described operations were last reported, by `time.monotonic`."""
        self._telling: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Connect, and list the operations of the peers. Raises `TransportError` if that fails."""
        await self._calls.open()
        try:
            link = self._calls.link
            assert link is not None
            await link.register(f"all:{CHANGED}")
            await self.refresh()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Disconnect, and end running calls with ``ABORTED``; idempotent."""
        self._is_closed = True
        tasks = {*self._describing.values()} | ({self._asking} if self._asking is not None else set())
        for task in tasks:
            task.cancel()
        if self._telling is not None:
            self._telling.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            await self._calls.aclose()

    # --- listing ---------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Load the listings of all peers again. Raises `TransportError` if the peers could not be asked.

        This also happens when a peer changes or the link reconnects.
        """
        try:
            answers = await self._calls.ask_all(DISCOVER, DISCOVER, wait=self._wait, late=self._see_late)
        except CallError as error:
            raise TransportError(str(error)) from error
        instances = {instance for instance in map(_instance_of, answers) if instance is not None}
        listings = await asyncio.gather(*map(self._list, instances))
        self._listings = {
            instance: self._listings.get(instance, {}) if listing is None else listing
            for instance, listing in zip(instances, listings, strict=True)
        }
        self._settle()

    def _see_late(self, answer: Any) -> None:
        """Add a peer that responds late to `operad.discover`."""
        instance = _instance_of(answer)
        if instance is not None:
            self._changed_there(instance)

    async def _refresh_one(self, instance: str) -> None:
        listing = await self._list(instance)
        if listing:
            self._listings[instance] = listing
        elif listing is not None:
            self._listings.pop(instance, None)

    async def _list(self, instance: str) -> dict[str, Offer] | None:
        """Return the operations that a peer lists: empty if the peer is gone, ``None`` if the listing fails."""
        offers: dict[str, Offer] = {}
        input: dict[str, Any] = {}
        try:
            for _ in range(_MAX_PAGES):
                page = (await self._calls.call(f"{LIST}.{instance}", input)).data
                for wire in page["operations"]:
                    offer = offer_of(instance, wire, self._reports.warn)
                    if offer is not None:
                        offers[offer.spec.id] = offer
                if "nextCursor" not in page:
                    break
                input = {"cursor": page["nextCursor"]}
            return await self._vouched(instance, offers)
        except (CallError, TransportError, KeyError, TypeError) as error:
            if isinstance(error, CallError) and error.code in _GONE:
                return {}
            self._reports.warn(instance, f"cannot list the operations of peer {instance}: {in_words(error)}")
            return None

    async def _vouched(self, instance: str, offers: dict[str, Offer]) -> dict[str, Offer]:
        """Return the offers that the instance serves, or all offers if the transport does not know."""
        served_by = getattr(self._calls.link, "served_by", None)
        if served_by is None or not offers:
            return offers
        served = await served_by(instance, [f"op:{operation_id}" for operation_id in offers])
        kept = {operation_id: offer for operation_id, offer in offers.items() if f"op:{operation_id}" in served}
        if len(kept) < len(offers):
            others = len(offers) - len(kept)
            self._reports.warn(
                instance, f"ignored operations that peer {instance} lists and does not serve: {others}"
            )
        return kept

    def _settle(self) -> None:
        """Make operations from the listings of all instances."""
        offers: dict[str, Offer] = {}
        for instance in sorted(self._listings):
            for remote_id, offer in self._listings[instance].items():
                held = offers.get(remote_id)
                offers[remote_id] = offer if held is None else stricter(held, offer, self._reports.warn)
        made: dict[str, Operation[..., Any]] = {}
        kept: dict[str, Offer] = {}
        for offer in offers.values():
            spec = operation_of(offer, self._namespace, self._reports.warn)
            if spec is None:
                continue
            old = self._offers.get(spec.id)
            if old is not None and old.is_same(offer):
                made[spec.id], kept[spec.id] = self._made[spec.id], old
            else:
                made[spec.id], kept[spec.id] = self._operation(spec, offer), offer
        self._made = dict(sorted(made.items()))
        self._offers = kept
        self._tell()

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self.changed(list(self._made.values()))

    def _tell_described(self) -> None:
        self._told = time.monotonic()
        self._tell()

    def _tell_soon(self) -> None:
        """Report described operations, immediately or up to 0.2 s after the last report."""
        if self._telling is None:
            wait = self._told + _SETTLE - time.monotonic()
            if wait <= 0:
                self._tell_described()
            else:
                self._telling = asyncio.get_running_loop().call_later(wait, self._tell_described)

    # --- calling ---------------------------------------------------------------------------------

    def _operation(self, spec: OperationSpec, offer: Offer) -> Operation[..., Any]:
        remote_id = offer.spec.id
        if spec.type is OperationType.SUBSCRIPTION:
            return Operation(spec, self._streaming(spec.id, remote_id))
        return Operation(spec, self._calling(spec, remote_id))

    def _calling(self, spec: OperationSpec, remote_id: str) -> Any:
        retry = spec.is_repeatable

        async def call(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            await self._described(spec.id)
            try:
                options = {**_options(context), "idempotency_key": context.idempotency_key}
                return await self._calls.call(remote_id, input, retry=retry, **options)
            except CallError as error:
                error.forwarded = True  # what this error states is true of the operation's own call, too
                raise

        return call

    def _streaming(self, operation_id: str, remote_id: str) -> Any:
        async def stream(input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[Any]]:
            await self._described(operation_id)
            async with self._calls.subscribe(remote_id, input, **_options(context)) as items:
                try:
                    async for envelope in items:
                        yield envelope
                except CallError as error:
                    error.forwarded = True
                    raise

        return stream

    # --- describing ------------------------------------------------------------------------------

    async def describe(self, operation_id: str) -> None:
        """Load the schemas of an operation, unless they are loaded. A failure is logged."""
        await self._described(operation_id)
        if self._telling is not None:
            self._tell()

    async def _described(self, operation_id: str) -> None:
        offer = self._offers.get(operation_id)
        if offer is None or offer.described or self._undescribed.get(operation_id, 0.0) > time.monotonic():
            return
        # A task of its own: calls that arrive meanwhile wait for it, and one that is cancelled does not end it.
        task = self._describing.get(operation_id)
        if task is None:
            task = self._describing[operation_id] = asyncio.create_task(self._describe(operation_id, offer))
            task.add_done_callback(lambda _: self._describing.pop(operation_id))
        await asyncio.wait({task})

    async def _describe(self, operation_id: str, offer: Offer) -> None:
        spec = await self._asked(f"{DESCRIBE}.{offer.instance}", offer)
        if spec is None:  # the instance may be stopped; another one may serve the same operation
            spec = await self._asked(DESCRIBE, offer)
        if self._offers.get(operation_id) is not offer:
            return  # meanwhile it is an operation of another peer
        if spec is None:
            self._undescribed[operation_id] = time.monotonic() + _DESCRIBE_AGAIN
            logger.warning("no peer describes %s: it is called without its schemas", operation_id)
            return
        self._undescribed.pop(operation_id, None)
        self._offers[operation_id] = attrs.evolve(offer, described=True)
        self._made[operation_id] = _with_schemas(self._made[operation_id], spec)
        self._tell_soon()

    async def _asked(self, address: str, offer: Offer) -> OperationSpec | None:
        try:
            input = {"operationId": offer.spec.id}
            wire = (await self._calls.call(address, input, timeout=_DESCRIBING)).data
            return OperationSpec.from_wire(wire)
        except (OperadError, TypeError, ValueError) as error:
            level = logging.DEBUG if isinstance(error, CallError) else logging.WARNING
            logger.log(level, "%s did not describe %s: %s", address, offer.spec.id, error)
            return None

    # --- following -------------------------------------------------------------------------------

    def _see(self, passed: Passed) -> None:
        if passed.direction == "in" and passed.event["type"] == CHANGED:
            self._changed_there(_instance_of(passed.event["payload"]))

    def _see_link(self, state: LinkState, epoch: int) -> None:
        if state == "up" and epoch > 1:
            self._changed_there(None)

    def _changed_there(self, instance: str | None) -> None:
        """Load listings again after a change of a peer or a reconnection; several changes share one update."""
        if self._is_closed:  # a change while it closes would be asked about afterwards
            return
        self._changed.add(instance if len(self._changed) < _MAX_PAGES else None)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_again())

    async def _ask_again(self) -> None:
        while self._changed:
            await asyncio.sleep(_SETTLE)
            changed, self._changed = self._changed, set()
            try:
                if None in changed:
                    await self.refresh()
                else:
                    await asyncio.gather(*(self._refresh_one(item) for item in changed if item is not None))
                    self._settle()
            except TransportError as error:  # asked again when the link is up
                logger.debug("the peers do not respond: %s", error)
            except Exception:  # no caller waits for this task, and it must survive for the next change
                logger.exception("the operations of peers could not be updated")


def _instance_of(answer: Any) -> str | None:
    instance = answer.get("instance") if isinstance(answer, dict) else None
    return instance if isinstance(instance, str) else None


def _options(context: OperationContext) -> dict[str, Any]:
    """Return the arguments of a call to a peer that come from a context."""
    given = ((name, context.metadata.get(name)) for name in TRACE)
    return {
        "deadline": context.deadline,
        "identity": context.identity,
        "parent_request_id": context.request_id,
        **{name: value for name, value in given if isinstance(value, str)},
    }


def _with_schemas(operation: Operation[..., Any], described: OperationSpec) -> Operation[..., Any]:
    schemas = {name: getattr(described, name) for name in ("input_schema", "output_schema", "error_schemas")}
    return attrs.evolve(operation, spec=attrs.evolve(operation.spec, **schemas))
