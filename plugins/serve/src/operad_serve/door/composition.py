"""Several ASGI applications on one address. Callers are authenticated once, and each route has one application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs

from operad import ConfigError
from operad_serve.asgi import (
    ADMISSION,
    RECORD,
    ASGIApplication,
    Exchange,
    Gate,
    Receive,
    RequestRecord,
    Scope,
    Send,
    close_websocket,
)
from operad_serve.problems import Problem

logger = logging.getLogger("operad.serve")

WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""The prefix of the metadata of a protected resource (RFC 9728, 3.1), followed by the path of the resource."""
CONNECT = ("/connect/", "/disconnect/")
"""The paths of the pages on which users connect their accounts."""
_AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
LOGIN = "/oauth"
"""The path of the authorization server, which also serves all paths below it."""
_STARTUP = 30.0
"""Seconds that an application may take to start, or to end."""


@attrs.frozen
class Mounted:
    """An application, its name, and the path at which it is mounted."""

    name: str
    mount: str
    app: ASGIApplication
    is_login: bool = False
    """Whether it is the authorization server, whose clients have no token yet and so are not authenticated."""


class Composition:
    """An ASGI 3 application that consists of other applications.

    It checks ``Host`` and ``Origin`` and authenticates the caller once, for all of them. Each application finds
    the result, an `Admission`, in the scope. A request goes to the application that is mounted at its path, else
    to the one at ``/``. The authorization server, whose clients are not authenticated yet, and the pages that
    connect accounts also get the paths below their own.

    Args:
        apps: the applications.
        gate: admits the requests.

    Raises:
        ConfigError: two applications have the same path.
    """

    def __init__(self, apps: Iterable[Mounted], gate: Gate) -> None:
        self._apps: dict[str, Mounted] = {}
        for each in apps:
            taken = self._apps.setdefault(each.mount, each)
            if taken is not each:
                raise ConfigError(
                    f'the servers "{taken.name}" and "{each.name}" have the same path {each.mount}; '
                    "disable one of their plugins"
                )
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. WebSockets are refused. Lifespans are ignored, because `running` runs them."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await close_websocket(send)
            return
        exchange = Exchange(scope, receive, send, scope["path"])
        try:
            self._gate.check(exchange)
            mounted = self._apps.get(self._route(scope)) or self._apps.get("/")
            if mounted is None:
                raise Problem(404, f"no such path; expected one of {', '.join(sorted(self._apps))}")
            if mounted.is_login:
                await mounted.app(scope, receive, send)
                return
            admission = await self._gate.admission(exchange)
            if isinstance(record := scope.get(RECORD), RequestRecord) and admission.identity is not None:
                record.identity = admission.identity.id
        except Problem as problem:
            await exchange.respond_problem(problem)
            return
        await mounted.app({**scope, ADMISSION: admission}, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the lifespans of all applications, and end them in reverse order.

        Raises `ConfigError` if an application fails to start. A failure to end is logged.
        """
        async with AsyncExitStack() as stack:
            for mounted in self._apps.values():
                await stack.enter_async_context(_lifespan(mounted))
            yield

    def _route(self, scope: Scope) -> str:
        """Return the path below the root of the composition, in the form of a mount."""
        path, root = scope["path"], scope.get("root_path", "").rstrip("/")
        if root and path.startswith(root + "/"):
            path = path[len(root) :]
        if path.startswith((LOGIN + "/", _AUTHORIZATION_SERVER)):
            return LOGIN
        if path.startswith(CONNECT):
            return CONNECT[0].rstrip("/")
        if path.startswith(WELL_KNOWN):  # the application of that resource responds
            resource: str = path[len(WELL_KNOWN) :].removeprefix(root)
            return resource or (LOGIN if LOGIN in self._apps else "/mcp")
        found: str = path
        return found

    async def drain(self, timeout: float) -> None:
        """Drain all applications at the same time, each for up to ``timeout`` seconds. Log failures."""
        drained = [each for each in self._apps.values() if hasattr(each.app, "drain")]
        drains = (getattr(each.app, "drain")(timeout) for each in drained)  # noqa: B009  # not in the type
        for each, outcome in zip(drained, await asyncio.gather(*drains, return_exceptions=True), strict=True):
            if isinstance(outcome, Exception):
                logger.error('the server "%s" failed to drain: %s: %s', each.name, type(outcome).__name__, outcome)


@asynccontextmanager
async def _lifespan(mounted: Mounted) -> AsyncIterator[None]:
    """Run the lifespan of one application in a task, if the application supports one (ASGI 3, Lifespan)."""
    loop = asyncio.get_running_loop()
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    outcomes = {"startup": loop.create_future(), "shutdown": loop.create_future()}

    async def send(message: MutableMapping[str, Any]) -> None:
        _, phase, result = message["type"].split(".")
        if not outcomes[phase].done():
            outcomes[phase].set_result(None if result == "complete" else message.get("message", "no reason given"))

    async def live() -> None:
        await mounted.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, incoming.get, send)

    task = loop.create_task(live())
    failure = await _phase(task, incoming, outcomes["startup"], "startup")
    if failure is not None:
        raise ConfigError(f'the server "{mounted.name}" did not start: {failure}')
    try:
        yield
    finally:
        failure = await _phase(task, incoming, outcomes["shutdown"], "shutdown")
        if failure is not None:
            logger.error('the server "%s" failed to stop: %s', mounted.name, failure)
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _phase(task: asyncio.Task[Any], incoming: Any, outcome: asyncio.Future[Any], phase: str) -> str | None:
    """Send a phase to an application. Return the reason of a failure, or None."""
    if task.done():
        return None
    incoming.put_nowait({"type": f"lifespan.{phase}"})
    await asyncio.wait([task, outcome], timeout=_STARTUP, return_when=asyncio.FIRST_COMPLETED)
    if outcome.done():
        reason: str | None = outcome.result()
        return reason
    return None if task.done() else f"it took more than {_STARTUP:g} s"
