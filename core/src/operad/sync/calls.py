"""The call map for programs without an event loop."""

from __future__ import annotations

import os
from typing import Any, Self

from operad.calls import CallMap
from operad.envelopes import ResponseEnvelope
from operad.plugins.discovery import load_plugins
from operad.sync.portal import Opened, portal
from operad.sync.streams import Subscription
from operad.transports import Transport


class PendingRequestMap(Opened):
    """An `operad.PendingRequestMap` with blocking calls, usable from any thread.

    Use it as a context manager, or `open` and `close` it. Raises `PluginError` if no plugin handles the transport,
    and `ConfigError` for an invalid URL or option.

    Args:
        transport: a transport, or its URL, such as ``nats://127.0.0.1:4222``.
        options: as for `operad.Plugins.call_map`; ``plugins`` are the plugins to use, by default the installed
            ones.
    """

    def __init__(self, transport: str | Transport, **options: Any) -> None:
        plugins = options.pop("plugins", None) or load_plugins()
        self.asynchronous: CallMap = portal().call(plugins.call_map, transport, **options)
        """The map behind this one; its coroutines must run in the background loop."""

    def open(self) -> Self:
        """Connect, and return this object. Raises `TransportError` if the connection fails."""
        here = self._portal()
        here.run(self.asynchronous.open())
        self._opened_by = os.getpid()
        here.keep(self)
        return self

    def close(self) -> None:
        """End all calls in progress and disconnect. Idempotent; does nothing in a forked child."""
        if self._opened_by == os.getpid():
            here, self._opened_by = portal(), None
            here.run(self.asynchronous.aclose())
            here.forget(self)

    def call(self, operation_id: str, input: Any = None, **options: Any) -> ResponseEnvelope[Any]:
        """Call an operation and return its envelope; for options and errors see `operad.calls.CallMap.call`.

        Raises `RuntimeError` in the thread of the background loop, and if the map was opened before a fork.
        """

        async def call() -> ResponseEnvelope[Any]:
            return await self.asynchronous.call(operation_id, input, **options)

        return self._portal().run(call())

    def subscribe(
        self, operation_id: str, input: Any = None, **options: Any
    ) -> Subscription[ResponseEnvelope[Any]]:
        """Return an iterator over the envelopes of an operation; see `operad.calls.CallMap.subscribe`."""
        here = self._portal()
        return Subscription(here, here.call(self.asynchronous.subscribe, operation_id, input, **options))
