"""What the tests of calls share."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from operad import CallError, CallHandler, InProcessTransport, OperationRegistry, OperationSpec, PendingRequestMap
from operad.transports import Capabilities, Delivery, TransportError
from operad_calls.federation import offers
from operad_testing import Participant

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

BROKER = Capabilities(detects_no_responders=True)
HUB = Capabilities(detects_no_responders=True, detects_peer_loss=True)
STORE = Capabilities(redelivers=True)
INSIDE = Capabilities(same_process=True, detects_peer_loss=True)

ANSWER = {"data": 1, "meta": {"source": "local", "operationId": "t.op", "timestamp": 0}}


def _warn(instance, line):
    logging.getLogger("operad.calls").warning("%s", line)


offer_of = partial(offers.offer_of, warn=_warn)
operation_of = partial(offers.operation_of, warn=_warn)
stricter = partial(offers.stricter, warn=_warn)


# --- operations ------------------------------------------------------------------------------------


async def waiting(input, context):
    await asyncio.sleep(60)


async def echo(input, context):
    return input


async def numbers(input, context):
    for number in range(input["to"]):
        yield number


def registry_of(**handlers):
    """A registry with operations ``t.<name>``: type, handler, and other fields of the spec if there are any."""
    registry = OperationRegistry()
    for name, (type_, handler, *more) in handlers.items():
        registry.register(OperationSpec(namespace="t", name=name, type=type_, **dict(*more)), handler)
    return registry


def event(type_="news", **payload):
    return {"type": type_, "id": "", "payload": payload}


# --- waiting ---------------------------------------------------------------------------------------


async def settle(turns=12):
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def error_of(awaitable):
    with pytest.raises(CallError) as caught:
        async with asyncio.timeout(30):  # what waits for ever is a failure, too
            await awaitable
    return caught.value


async def cancel(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# --- both sides ------------------------------------------------------------------------------------


@asynccontextmanager
async def both(registry, transport=None, handling=(), **options):
    """A handler, with the options ``handling``, and a call map with the others."""
    transport = transport or InProcessTransport()
    handler = CallHandler(registry, transport, **dict(handling))
    async with handler, PendingRequestMap(transport, **options) as calls:
        yield handler, calls


@asynccontextmanager
async def with_caller(registry, transport=None, **options):
    """A handler, and a caller that is played by hand."""
    transport = transport or InProcessTransport()
    async with CallHandler(registry, transport, **options) as handler, Participant.open(transport) as caller:
        yield handler, caller


@asynccontextmanager
async def with_server(transport=None, **options):
    """A call map, and a peer that serves ``t.op`` by hand."""
    transport = transport or InProcessTransport()
    async with PendingRequestMap(transport, **options) as calls, Participant.open(transport) as server:
        await server.link.register("op:t.op", "operad")
        yield calls, server


async def reply(server, request, type_="call.responded", **fields):
    """Send an event of a request, by default its answer."""
    if type_ == "call.responded":
        fields = {"output": ANSWER, **fields}
    await server.send(request["replyTo"], type_, requestId=request["requestId"], **fields)


# --- transports ------------------------------------------------------------------------------------


def altered(alter, bus=None, **capabilities):
    """A transport over a bus of this process, each of whose links is altered as it is opened."""
    bus = bus or InProcessTransport()

    async def open(on_event, on_link):
        link = await bus.open(on_event, on_link)
        alter(link)
        return link

    return SimpleNamespace(
        bus=bus, open=open, capabilities=Capabilities(**capabilities) if capabilities else bus.capabilities
    )


class Heard:
    """A transport within the process: a test says what its first link hears, by `on_event` and `on_link`."""

    def __init__(self, bus=None):
        self.bus = bus or InProcessTransport()
        self.capabilities = self.bus.capabilities
        self.on_event = self.on_link = None

    async def open(self, on_event, on_link):
        if self.on_event is None:
            self.on_event, self.on_link = on_event, on_link
        return await self.bus.open(on_event, on_link)


class Lone:
    """A transport of one link, which sends as it is told."""

    inbox = "inbox:lone"
    capabilities = Capabilities()

    def __init__(self, send):
        self._send = send

    async def open(self, on_event, on_link):
        on_link("up", 1)
        return self

    async def send(self, to, event):
        return await self._send()

    async def close(self):
        pass


class Flapping:
    """An in-process bus whose links the test takes down and up; it says what it can as it is told."""

    def __init__(self, **capabilities):
        self.bus = InProcessTransport(strict=True)
        self.capabilities = Capabilities(balances=True, **capabilities)
        self.states = []

    async def open(self, on_event, on_link):
        self.states.append(on_link)
        return await self.bus.open(on_event, on_link)

    def flap(self):
        for on_link in self.states:
            on_link("down", 1)
            on_link("up", 2)


class LinkOver:
    """Another link, without what its class could be asked beyond the protocol `Link`."""

    def __init__(self, link):
        self._link = link
        self.inbox, self.register, self.drain, self.close = link.inbox, link.register, link.drain, link.close

    async def send(self, to, event):
        await self._link.send(to, event)


class Wired:
    """An in-process bus that encodes, hides who sent what, and loses some events, as between processes."""

    def __init__(self, loses=(), **capabilities):
        self.bus = InProcessTransport(strict=True)
        self.capabilities = Capabilities(balances=True, detects_no_responders=True, **capabilities)
        self.loses = loses
        self.on_event = None

    async def open(self, on_event, on_link):
        self.on_event = self.on_event or on_event  # the first link's

        def deliver(event, delivery):
            if event["type"] not in self.loses:
                on_event(event, Delivery(to=delivery.to))

        return LinkOver(await self.bus.open(deliver, on_link))


class Wire:
    """A link that keeps what is sent and registered, fails with the next of its errors, and holds up what it is
    told to."""

    inbox = "inbox:me"

    def __init__(self, target=None, hold=None):
        self.sent, self.errors, self.registered, self.gone = [], [], [], []
        self.target, self.hold = target, hold
        self.refuses = set()

    async def send(self, to, event):
        await asyncio.sleep(0)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self.sent.append((to, event["type"], dict(event["payload"])))
        if self.hold is not None:
            await self.hold.wait()
        return self.target

    def told(self, type_=None):
        """What was sent since the last time, or the addresses and payloads of events of one type."""
        found = [row for row in self.sent if type_ in (None, row[1])]
        self.sent = [row for row in self.sent if row not in found]
        return found if type_ is None else [(to, payload) for to, _, payload in found]

    async def register(self, topic, group=None):
        await asyncio.sleep(0)
        if topic in self.refuses:
            raise TransportError(f"{topic} is taken")
        self.registered.append((topic, group))

        async def unregister():
            self.gone.append(topic)

        return SimpleNamespace(unregister=unregister)
