"""What the tests of calls share."""

import logging
from functools import partial

from operad import InProcessTransport, OperationRegistry, OperationSpec
from operad_calls.federation import offers


def _warn(instance, line):
    logging.getLogger("operad.calls").warning("%s", line)


offer_of = partial(offers.offer_of, warn=_warn)
operation_of = partial(offers.operation_of, warn=_warn)
stricter = partial(offers.stricter, warn=_warn)


def registry_of(**handlers):
    """A registry with operations ``t.<name>``, each a pair of type and handler."""
    registry = OperationRegistry()
    for name, (type_, handler) in handlers.items():
        registry.register(OperationSpec(namespace="t", name=name, type=type_), handler)
    return registry


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


class LinkOver:
    """Another link, without what its class could be asked beyond the protocol `Link`."""

    def __init__(self, link):
        self._link = link
        self.inbox, self.register, self.drain, self.close = link.inbox, link.register, link.drain, link.close

    async def send(self, to, event):
        await self._link.send(to, event)
