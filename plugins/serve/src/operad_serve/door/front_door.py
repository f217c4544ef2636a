"""The front door: load the sources of a plan, serve them until a signal, and drain.

Mistakes in the command line or the configuration are reported before any source is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs

from operad import ConfigError, OperadError, OperationRegistry
from operad.plugin import CallServer, LinkDownError, Server
from operad_auth.connecting import user_tokens
from operad_auth.http import tell_manager, until_stopped
from operad_auth.http.urls import shown_url
from operad_serve.asgi import Exchange, Gate, Receive, Scope, Send
from operad_serve.door.composition import LOGIN, Composition, Mounted
from operad_serve.door.connect import ConnectPages
from operad_serve.door.messages import report
from operad_serve.door.options import (
    configured_authenticator,
    credentials_needed,
    server_options,
    server_plugins,
)
from operad_serve.door.plan import Plan
from operad_serve.door.processes import Supervisor
from operad_serve.door.requests import Metrics, Requests, access_log
from operad_serve.door.transport import transport_of
from operad_serve.health import health_of
from operad_serve.listening import Address, listen, serving, url_of
from operad_serve.problems import Problem

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""The first and the longest pause between attempts to connect to a transport's server, in seconds."""
_LAST_WAIT = 2.0
"""How many seconds cancelled tasks may take to end before the process exits."""


class FrontDoor:
    """The servers of a plan, for one registry whose sources are loaded.

    Args:
        registry: the registry that is served.
        plan: what to serve, and where.
        stopped: an event that is set on a stop signal. It ends attempts to connect to a transport.

    Raises:
        ConfigError: the configured authenticator cannot be made.
    """

    def __init__(self, registry: OperationRegistry, plan: Plan, stopped: asyncio.Event) -> None:
        self._registry = registry
        self._stopped = stopped
        self._plan = plan
        self._authenticate = configured_authenticator(registry, plan.options, plan.base_dir)
        self._is_draining = False
        self._drains: list[Callable[[float], Any]] = []
        self.url: str | None = None
        """The URL of the HTTP server; None before `open`, or if HTTP is not served."""
        self.health_url: str | None = None
        self.has_explorer = False
        self.has_openapi = False
        self.has_mcp = False
        self.is_authenticated = self._authenticate is not None
        """Whether callers are authenticated."""
        self.accepts_anonymous = False
        """Whether a server accepts HTTP requests without credentials."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[asyncio.Event]:
        """Serve, and drain on exit. Yield an event that ends the command.

        The event is set when standard input ends, if the plan serves only MCP on standard streams.

        Raises:
            ConfigError: an address cannot be used, a server cannot start, or no plugin serves over HTTP.
            LinkDownError: a stop signal came before the transport was connected.
        """
        plan = self._plan
        ended = asyncio.Event()
        async with AsyncExitStack() as stack:
            if plan.http is not None:
                await self._open_http(stack, plan.http)
            if plan.health is not None:
                bound = stack.enter_context(self._socket("health", plan.health, is_guarded=True))
                await stack.enter_async_context(serving(self._health, bound))
                self.health_url = f"{url_of(bound)}/health"
            if plan.has_transport:
                await self._open_transport(stack)
            if plan.is_stdio:
                only = plan.http is None and not plan.has_transport
                await stack.enter_async_context(self._stdio(ended if only else asyncio.Event()))
            try:
                yield ended
            finally:
                self._is_draining = True
                await asyncio.gather(*(drain(plan.options.drain_timeout) for drain in self._drains))

    def _socket(
        self, name: str, address: Address, *, is_guarded: bool
    ) -> contextlib.AbstractContextManager[socket.socket]:
        """Open the socket of an address, or use the one that this process shares with others."""
        shared = self._plan.sockets.get(name)
        return listen(address, is_guarded=is_guarded) if shared is None else contextlib.closing(shared)

    async def _open_http(self, stack: AsyncExitStack, address: Address) -> None:
        plan = self._plan
        options = plan.options
        mounted = []
        for server in server_plugins(self._registry).servers.values():
            if server.app is not None:
                config = self._config_of(server)
                mounted.append(Mounted(server.name, server.mount, server.app(self._registry, config)))
                self.accepts_anonymous |= self._authenticate is None or getattr(config, "anonymous", False)
        if not mounted:
            raise ConfigError("expected a plugin that serves over HTTP, got none; see `operad plugins` for errors")
        oauth = options.oauth
        gate = Gate(
            self._authenticate,
            options.allowed_hosts,
            options.allowed_origins,
            anonymous=options.anonymous,
            metadata_url=None if oauth is None else oauth.resource_metadata_url,
        )
        login = None
        if oauth is not None:
            from operad_serve.oauth.application import OAuthApplication

            login = OAuthApplication(oauth, gate, plan.base_dir)
            mounted.append(Mounted("oauth", LOGIN, login, is_login=True))
        users = user_tokens(self._registry)
        if users:
            mounted.append(Mounted("connect", "/connect", ConnectPages(users, self._authenticate, login)))
        metrics = Metrics(self._registry, gate)
        composition = Composition([*mounted, Mounted("metrics", "/metrics", metrics)], gate)
        requests = metrics.requests = Requests(composition, access_log() if options.access_log else None)
        bound = stack.enter_context(self._socket("http", address, is_guarded=gate.authenticates))
        await stack.enter_async_context(
            serving(
                requests,
                bound,
                proxy_headers=options.proxy_headers,
                root_path=options.root_path,
                keep_alive=options.keep_alive,
                tls=plan.tls,
            )
        )
        await stack.enter_async_context(composition.running())
        self._drains.append(composition.drain)
        self.url = url_of(bound, "http" if plan.tls is None else "https")
        names = {each.name for each in mounted}
        self.has_explorer = options.explorer and "openapi" in names
        self.has_openapi, self.has_mcp = "openapi" in names, "mcp" in names

    def _config_of(self, server: Server) -> Any:
        """Return a server's options: from ``[serve]``, the command line and its own table. The later ones win."""
        plan, options = self._plan, self._plan.options
        known = {field.alias for field in attrs.fields(server.config_type)}
        shared: dict[str, Any] = {
            "authenticate": self._authenticate,
            "explorer": options.explorer,
            "title": options.title,
            "max_body": options.max_body,
            "allowed_hosts": options.allowed_hosts,
            "allowed_origins": options.allowed_origins,
            "mask_errors": plan.mask_errors,
            "anonymous": options.anonymous,
        }
        if options.oauth is not None:
            shared |= {
                "resource_url": options.oauth.mcp_url,
                "authorization_servers": [options.oauth.base],
                "scopes_supported": options.oauth.all_scopes,
            }
        if options.timeout is not None:
            shared["timeout"] = options.timeout
        values = {name: value for name, value in shared.items() if name in known}
        return server_options(self._registry, server, {**values, **plan.servers.get(server.name, {})})

    async def _open_transport(self, stack: AsyncExitStack) -> None:
        plan = self._plan
        transport, url = transport_of(self._registry, plan.transport)
        # Plain values, and only what was set: the call server may be another plugin's.
        given = attrs.asdict(plan.calls, filter=lambda field, value: value != field.default)
        if plan.identity is not None:
            given["identity"] = plan.identity
        server = self._registry.plugins.call_server(
            self._registry, transport, mask_errors=plan.mask_errors, **given
        )
        await self._connect(server)
        stack.push_async_exit(server)
        # Some operations of the registry may not be served there, such as those of other processes.
        report(f"serving {_operations(getattr(server, 'serving', len(self._registry)))} on {shown_url(url)}")

    async def _connect(self, server: CallServer) -> None:
        """Start a call server. Wait for the server of its transport, which may start later than this process.

        Raises `LinkDownError` if a stop signal comes first.
        """
        pause, reported = _FIRST_PAUSE, False
        while True:
            try:
                await server.__aenter__()
            except LinkDownError as error:
                if not reported:
                    report(f"{error}; trying again until it is up")
                    reported = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):  # noqa: S311  # not a secret
                        await self._stopped.wait()
                if self._stopped.is_set():
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return

    @asynccontextmanager
    async def _stdio(self, ended: asyncio.Event) -> AsyncIterator[None]:
        """Serve MCP on standard streams. The event is set when standard input ends."""
        server = server_plugins(self._registry).server("mcp")

        async def serve() -> None:
            try:
                await server.serve(self._registry, self._config_of(server))
            finally:
                ended.set()

        task = asyncio.get_running_loop().create_task(serve())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to ``/health`` and to no other path: an ASGI application."""
        exchange = Exchange(scope, receive, send, scope["path"])
        if exchange.path != "/health":
            await exchange.respond_problem(Problem(404, "no such path; expected /health"))
            return
        status, body = health_of(self._registry, is_draining=self._is_draining)
        await exchange.respond(status, body, "application/json")


def run(serving: Coroutine[Any, Any, int]) -> int:
    """Run the coroutine of `serve`, and return its exit code.

    If a task does not end within 2 seconds of its cancellation, the process exits with code 1.

    Raises:
        OperadError: `serve` raised it.
    """

    async def whole() -> int:
        try:
            return await serving
        except OperadError as error:
            await _end_tasks(error)
            raise
        finally:
            await _end_tasks(None)

    return asyncio.run(whole())


async def _end_tasks(error: OperadError | None) -> None:
    """Cancel the running tasks. If one does not end, report the error and end the process with code 1."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if not left or not (await asyncio.wait(left, timeout=_LAST_WAIT))[1]:
        return
    for line in (error, "a call ignored its cancellation; the process ended without waiting for it"):
        if line is not None:
            report(f"error: {line}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


async def serve(
    registry: OperationRegistry, plan: Plan, load: Callable[[OperationRegistry], Awaitable[int]]
) -> int:
    """Load the sources, serve until a signal comes, and drain. Return the exit code of ``load``.

    If that code is not 0 and ``strict`` is set in the plan, nothing is served.

    Args:
        registry: the registry. It must not be open yet.
        plan: what to serve, and where.
        load: loads the sources of the command line, reports those that failed, and returns the exit code.

    Raises:
        OperadError: the registry cannot be opened, or the plan cannot be served.
    """
    with until_stopped() as stopped, _stdout_kept(plan):
        async with registry:
            code = await load(registry)
            if code and plan.options.strict:
                report("not serving, because a source failed and strict is set")
                return code
            door = FrontDoor(registry, plan, stopped)
            with _settled():
                async with door.open() as ended:
                    for line in () if plan.is_quiet else _greeting(door, plan, registry):
                        report(line)
                    tell_manager("READY=1")
                    if plan.on_ready is not None:
                        plan.on_ready()
                    await _first(stopped, ended)
                    tell_manager("STOPPING=1")
                    if not ended.is_set() and not plan.is_quiet:
                        report("draining")
            return code


def run_workers(registry: OperationRegistry, plan: Plan, command: Callable[[], Any], count: int) -> int:
    """Serve with ``count`` processes that share the sockets of a plan. Return the exit code, see `Supervisor.run`.

    Each process runs ``command``, which makes its own registry and plan.

    Raises:
        ConfigError: an address cannot be used, or ``[idempotency]`` has no store that processes can share.
    """
    tables = {} if registry.configuration is None else registry.configuration.tables
    if "store" not in tables.get("idempotency", {"store"}):
        raise ConfigError(
            "--workers needs a store for idempotency keys that all processes share; set store in [idempotency], "
            "or remove --workers"
        )
    is_guarded = configured_authenticator(registry, plan.options, plan.base_dir) is not None
    with contextlib.ExitStack() as stack:
        sockets = {}
        if plan.http is not None:
            sockets["http"] = stack.enter_context(listen(plan.http, is_guarded=is_guarded))
        if plan.health is not None:
            sockets["health"] = stack.enter_context(listen(plan.health, is_guarded=True))
        return Supervisor(command, sockets).run(count)


@contextlib.contextmanager
def _settled() -> Iterator[None]:
    """Exclude loaded objects from garbage collection, because a pass over a large registry stops every call."""
    if gc.get_freeze_count():  # the program that runs this command has frozen objects of its own
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _stdout_kept(plan: Plan) -> Iterator[None]:
    """Redirect standard output to standard error if MCP uses standard output."""
    with contextlib.redirect_stdout(sys.stderr) if plan.is_stdio else contextlib.nullcontext():
        yield


def _greeting(door: FrontDoor, plan: Plan, registry: OperationRegistry) -> Sequence[str]:
    """Return lines that name each server and its address, and how many operations are open to every caller."""
    lines, count = [], len(registry)
    if door.url is not None:
        lines.append(f"serving {_operations(count)} on {door.url}; press Ctrl-C to stop")
        if door.has_explorer:
            lines.append(f"  explorer       {door.url}/")
        if door.has_openapi:
            lines.append(f"  OpenAPI        {door.url}/openapi.json")
        if door.has_mcp:
            lines.append(f"  MCP            {door.url}/mcp")
        lines.append(f"  metrics        {door.url}/metrics")
        needed = credentials_needed(registry, door.is_authenticated, door.accepts_anonymous)
        lines.append(f"  credentials    {needed}")
    if door.health_url is not None:
        lines.append(f"  health         {door.health_url}")
    if plan.is_stdio:
        lines.append(f"serving {_operations(count)} over MCP on standard streams")
    return lines


def _operations(count: int) -> str:
    return f"{count} operation{'' if count == 1 else 's'}"


async def _first(*events: asyncio.Event) -> None:
    """Wait for one of several events."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
