"""The ASGI application: routes, and the one place where errors become answers."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from operad import OperationRegistry
from operad.wire import to_json
from operad_serve.api.admission import Doorkeeper
from operad_serve.api.calls import Calls
from operad_serve.api.document import DocumentMaker
from operad_serve.api.exchange import ClientGoneError, Exchange, Receive, Send
from operad_serve.api.forms import PREFIX, Forms, id_of
from operad_serve.api.options import OpenAPIServerConfig
from operad_serve.api.pages import PREFIX as PAGES
from operad_serve.api.pages import Explorer
from operad_serve.api.places import place_of
from operad_serve.api.problems import PROBLEM_TYPE, Problem
from operad_serve.api.traces import Traces

logger = logging.getLogger("operad.serve")

DRAIN_TIMEOUT = 10.0
"""Seconds that running calls get when the host ends the application's lifespan."""


class OpenAPIApplication:
    """A registry over HTTP; an ASGI 3 application, made by `to_openapi`.

    It needs no lifespan: it may be mounted anywhere, and started again. Where the host forwards one, its end
    drains.
    """

    def __init__(self, registry: OperationRegistry, config: OpenAPIServerConfig) -> None:
        self._registry = registry
        self._config = config
        self._door = Doorkeeper(config)
        guarded = self._door.has_authenticator
        self._traces = Traces(registry)
        self._calls = Calls(
            registry,
            config,
            Forms(registry, formats=config.check_formats),
            self._traces if config.explorer else None,
        )
        self._documents = DocumentMaker(registry, config, guarded=guarded)
        self._explorer = Explorer(registry, config, self._traces, guarded=guarded) if config.explorer else None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            root, path = place_of(scope)
            await self._serve(Exchange(scope, receive, send, path, self._config.write_timeout), root)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:  # a WebSocket: nothing here speaks it
            await send({"type": "websocket.close", "code": 1000})

    async def drain(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Take no new call, end the streams in words, and give running calls ``timeout`` seconds; idempotent."""
        await self._calls.drain(timeout)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._calls.restart()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.drain()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, exchange: Exchange, root: str) -> None:
        exchange.request_id = self._calls.request_id()
        exchange.add_header(b"operad-request-id", exchange.request_id)
        try:
            self._door.check_place(exchange)
            await self._route(exchange, root)
        except ClientGoneError:
            return
        except Problem as problem:
            await self._answer(exchange, problem)
        except Exception:
            logger.exception("%s %r failed (request %s)", exchange.method, exchange.path, exchange.request_id)
            if exchange.started:
                raise  # the server cuts the connection: what was sent is no whole answer
            message = f"the server failed; its log has the reason under request {exchange.request_id}"
            await self._answer(exchange, Problem(500, message))

    async def _route(self, exchange: Exchange, root: str) -> None:
        path = exchange.path
        if path.startswith(PREFIX):
            # A preflight has no credentials (WHATWG Fetch, 4.8): what it may tell is what anybody may know.
            await self._door.identify(exchange)
            operation_id = id_of(path)
            if operation_id is not None:
                await self._calls.serve(exchange, operation_id)
                return
        elif path == "/openapi.json":
            _only_get(exchange)
            await self._door.identify(exchange)
            text = await self._documents.text(exchange.identity, root)
            await exchange.respond(200, text, "application/json")
            return
        elif path == "/health":
            _only_get(exchange)
            draining = self._calls.is_draining
            body = to_json({"status": "draining" if draining else "ok"})
            await exchange.respond(503 if draining else 200, body, "application/json")
            return
        elif self._explorer is not None and (path == "/" or path.startswith(PAGES)):
            await self._door.identify(exchange)
            await self._explorer.serve(exchange)
            return
        raise Problem(404, "there is nothing here; /openapi.json lists the operations")

    async def _answer(self, exchange: Exchange, problem: Problem) -> None:
        if problem.status == 204:
            await exchange.respond(204, headers=problem.headers)
            return
        await exchange.respond(
            problem.status, problem.to_json(exchange.request_id), PROBLEM_TYPE, headers=problem.headers
        )


def _only_get(exchange: Exchange) -> None:
    if exchange.method == "OPTIONS":
        raise Problem(204, "", headers=[(b"allow", b"GET, HEAD")])
    if exchange.method not in ("GET", "HEAD"):
        raise Problem(405, "expected GET", headers=[(b"allow", b"GET, HEAD")])
