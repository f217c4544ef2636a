"""Several ASGI applications on one address: who comes in is asked once, each route has one application."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs

from operad import CallError, ConfigError
from operad.sources import Admission, ASGIApplication
from operad_auth import Authenticator, Credentials, HostRules

logger = logging.getLogger("operad.serve")

WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""Where the metadata of a protected resource are (RFC 9728, 3.1): its path follows."""
_STARTUP = 30.0
"""Seconds that an application may take to start, or to end."""


@attrs.frozen
class Mounted:
    """An application, and its path on the shared address."""

    name: str
    mount: str
    app: ASGIApplication


class Composition:
    """An ASGI 3 application made of others.

    ``Host`` and ``Origin`` are checked and the caller is asked for here, once; an application finds the result, an
    `Admission`, in ``scope["operad"]``. A path belongs to the application that is mounted at exactly this one;
    what nobody has goes to the one at ``/``.

    Args:
        apps: the applications. Raises `ConfigError` if two have the same path.
        rules: of ``Host`` and ``Origin``.
        authenticate: who calls.
    """

    def __init__(
        self, apps: Iterable[Mounted], rules: HostRules, authenticate: Authenticator | None = None
    ) -> None:
        self._apps: dict[str, Mounted] = {}
        for each in apps:
            taken = self._apps.setdefault(each.mount, each)
            if taken is not each:
                raise ConfigError(f'the servers "{taken.name}" and "{each.name}" both want the path {each.mount}')
        self._rules = rules
        self._authenticate = authenticate

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one request; lifespans are `running`'s affair."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        ambiguous = self._rules.ambiguity(scope["headers"])
        if ambiguous is not None:
            await _answer(send, *ambiguous, is_last=True)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._rules.refusal(scope.get("server"), headers.get("host"), headers.get("origin"))
        if refused is not None:
            await _answer(send, *refused)
            return
        mounted = self._apps.get(_route(scope)) or self._apps.get("/")
        if mounted is None:
            await _answer(send, 404, f"there is nothing here; served are {', '.join(sorted(self._apps))}")
            return
        try:
            admission = await self._admit(headers, scope)
        except CallError as error:
            logger.warning("who calls cannot be found out: %s", error)
            await _answer(send, 503, "who calls cannot be found out now; try again")
            return
        await mounted.app({**scope, "operad": admission}, receive, send)

    async def _admit(self, headers: Mapping[str, str], scope: MutableMapping[str, Any]) -> Admission:
        if self._authenticate is None:
            return Admission()
        client = scope.get("client")
        credentials = Credentials.from_headers(headers, client[0] if client else None)
        identity = await self._authenticate(credentials)
        return Admission(identity, identity is None and credentials.token is not None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The lifespans of all applications; the last one started ends first."""
        async with AsyncExitStack() as stack:
            for mounted in self._apps.values():
                await stack.enter_async_context(_lifespan(mounted))
            yield

    async def drain(self, timeout: float) -> None:
        """Let each application end its streams in words and finish its calls, all at once."""
        drains = [each.app.drain for each in self._apps.values() if hasattr(each.app, "drain")]
        for outcome in await asyncio.gather(*(drain(timeout) for drain in drains), return_exceptions=True):
            if isinstance(outcome, Exception):
                logger.error("a server could not drain: %s", outcome)


def _route(scope: MutableMapping[str, Any]) -> str:
    """The path below the composition's own root, as mounts are named."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    if root and path.startswith(root + "/"):
        path = path[len(root) :]
    if path.startswith(WELL_KNOWN):  # the resource that it is about answers
        path = path[len(WELL_KNOWN) :].removeprefix(root) or "/mcp"
    found: str = path
    return found


async def _answer(send: Any, status: int, detail: str, *, is_last: bool = False) -> None:
    """Answer a problem; after the last answer the connection is closed."""
    body = json.dumps({"status": status, "detail": detail}).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    if is_last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def _lifespan(mounted: Mounted) -> AsyncIterator[None]:
    """The lifespan of one application, in a task of its own; one that knows none needs none (ASGI 3, Lifespan)."""
    loop = asyncio.get_running_loop()
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answers = {"startup": loop.create_future(), "shutdown": loop.create_future()}

    async def send(message: MutableMapping[str, Any]) -> None:
        _, phase, outcome = message["type"].split(".")
        if not answers[phase].done():
            answers[phase].set_result(None if outcome == "complete" else message.get("message", "no reason given"))

    async def live() -> None:
        await mounted.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, incoming.get, send)

    task = loop.create_task(live())
    failure = await _phase(task, incoming, answers["startup"], "startup")
    if failure is not None:
        raise ConfigError(f'the server "{mounted.name}" did not start: {failure}')
    try:
        yield
    finally:
        failure = await _phase(task, incoming, answers["shutdown"], "shutdown")
        if failure is not None:
            logger.error('the server "%s" did not end well: %s', mounted.name, failure)
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _phase(task: asyncio.Task[Any], incoming: Any, answer: asyncio.Future[Any], phase: str) -> str | None:
    """Tell an application of a phase; what failed, or ``None``."""
    if task.done():
        return None
    incoming.put_nowait({"type": f"lifespan.{phase}"})
    await asyncio.wait([task, answer], timeout=_STARTUP, return_when=asyncio.FIRST_COMPLETED)
    if answer.done():
        reason: str | None = answer.result()
        return reason
    return None if task.done() else f"it took more than {_STARTUP:g} s"
