"""The ASGI application of the HTTP API, which routes requests and turns errors into responses."""

from __future__ import annotations

import logging

from operad import OperationRegistry
from operad_serve.api.calls import Calls
from operad_serve.api.document import DocumentMaker
from operad_serve.api.forms import PREFIX, Forms, id_of
from operad_serve.api.options import OpenAPIServerConfig
from operad_serve.api.pages import PREFIX as PAGES
from operad_serve.api.pages import Explorer
from operad_serve.api.places import place_of
from operad_serve.api.traces import Traces
from operad_serve.asgi import (
    ClientGoneError,
    Exchange,
    Gate,
    Receive,
    Scope,
    Send,
    close_websocket,
    is_preflight,
    run_lifespan,
)
from operad_serve.health import health_of
from operad_serve.listening import DRAIN_TIMEOUT, serve_alone
from operad_serve.problems import Problem

logger = logging.getLogger("operad.serve")

_CORS = {
    "methods": "GET, POST, OPTIONS",
    "headers": "Authorization, Content-Type, Accept, Operad-Timeout, Operad-Trace, Idempotency-Key, "
    "Last-Event-ID, traceparent, tracestate, baggage",
    "expose": "Operad-Source, Operad-Meta, Operad-Request-Id",
}
"""What pages of an allowed origin may send and read."""


class OpenAPIApplication:
    """The HTTP API of a registry, an ASGI 3 application. `to_openapi` makes it.

    It needs no lifespan, and can be mounted at any path. If the host forwards a lifespan, the application drains
    when the lifespan ends, and starts again with a new one.
    """

    def __init__(self, registry: OperationRegistry, config: OpenAPIServerConfig) -> None:
        self._registry = registry
        self._config = config
        self._gate = Gate(
            config.authenticate, config.allowed_hosts, config.allowed_origins, anonymous=config.anonymous
        )
        guarded = self._gate.authenticates
        self._traces = Traces(registry)
        self._calls = Calls(
            registry,
            config,
            Forms(registry, formats=config.check_formats),
            self._gate,
            self._traces if config.explorer else None,
        )
        self._documents = DocumentMaker(registry, config, guarded=guarded)
        self._explorer = Explorer(registry, config, self._traces, guarded=guarded) if config.explorer else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            root, path = place_of(scope)
            await self._serve(Exchange(scope, receive, send, path, self._config.write_timeout), root)
        elif scope["type"] == "lifespan":
            await run_lifespan(receive, send, self._calls.restart, self.drain)
        else:
            await close_websocket(send)

    async def drain(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Accept no new calls, end the streams with an event, and cancel other calls after ``timeout`` seconds."""
        await self._calls.drain(timeout)

    async def _serve(self, exchange: Exchange, root: str) -> None:
        if not exchange.request_id:  # else the front door adds the header
            exchange.request_id = self._calls.request_id()
            exchange.add_header(b"operad-request-id", exchange.request_id)
        try:
            self._gate.check(exchange)
            self._gate.allow_origin(exchange, **_CORS)
            await self._route(exchange, root)
        except ClientGoneError:
            return
        except Problem as problem:
            await exchange.respond_problem(problem)
        except Exception:
            logger.exception("%s %r failed (request %s)", exchange.method, exchange.path, exchange.request_id)
            if exchange.started:
                raise  # the server closes the connection: the client must not take a part for the whole
            message = f"the server failed; its log has the reason under the id {exchange.request_id}"
            await exchange.respond_problem(Problem(500, message))

    async def _route(self, exchange: Exchange, root: str) -> None:
        path = exchange.path
        if path.startswith(PREFIX):
            if is_preflight(exchange):
                raise Problem(204, "", headers=[(b"allow", b"GET, POST, OPTIONS")])
            await self._gate.identify(exchange)
            operation_id = id_of(path)
            if operation_id is not None:
                await self._calls.serve(exchange, operation_id)
                return
        elif path == "/openapi.json":
            _only_get(exchange)
            await self._gate.identify(exchange)
            text = await self._documents.text(exchange.identity, root)
            await exchange.respond(200, text, "application/json")
            return
        elif path == "/health":
            _only_get(exchange)
            status, body = health_of(self._registry, is_draining=self._calls.is_draining)
            await exchange.respond(status, body, "application/json")
            return
        elif self._explorer is not None and (path == "/" or path.startswith(PAGES)):
            if not self._explorer.is_static(path):
                await self._gate.identify(exchange)
            await self._explorer.serve(exchange)
            return
        raise Problem(404, "no such path; /openapi.json lists the operations")


async def serve(registry: OperationRegistry, config: OpenAPIServerConfig) -> None:
    """Serve the HTTP API on the host and port in ``config`` until cancelled, then drain it.

    Raises:
        ConfigError: the address cannot be used, or other machines could connect without authentication.
    """
    application = OpenAPIApplication(registry, config)
    await serve_alone(application, (config.host, config.port), is_guarded=config.authenticate is not None)


def _only_get(exchange: Exchange) -> None:
    if exchange.method == "OPTIONS":
        raise Problem(204, "", headers=[(b"allow", b"GET, HEAD")])
    if exchange.method not in ("GET", "HEAD"):
        raise Problem(405, f"expected GET, got {exchange.method}", headers=[(b"allow", b"GET, HEAD")])
