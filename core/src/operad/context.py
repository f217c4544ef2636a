"""The context of a call: the caller, the deadline, and calls to other operations."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from threading import Thread
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import attrs

from operad.access import Identity
from operad.envelopes import ResponseEnvelope
from operad.names import Listed, attributes_of, input_of, operation_name
from operad.observers import CallListener, CallReport, Watch, Worker
from operad.operations import Operation
from operad.records import record
from operad.subscriptions import Subscription

T = TypeVar("T")


class Callables(Listed, Protocol):
    """The part of a registry that nested calls, clients and typed calls use to make calls."""

    async def execute(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation and return its envelope; see `OperationRegistry.execute`."""

    def subscribe(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe to an operation; see `OperationRegistry.subscribe`."""


logger = logging.getLogger("operad")

LONGEST_KEY = 255
"""The maximum length of an idempotency key, in characters."""
worker_threads: WeakSet[Thread] = WeakSet()
"""The threads of this process that run plain ``def`` handlers."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, **dict.fromkeys(("critical", "alert", "emergency"), logging.CRITICAL),
}  # fmt: skip


@attrs.define(eq=False)
class OperationContext:
    """A call as its handler sees it, and as an application describes a call that it makes.

    Args:
        request_id: the id of this call; the registry makes one if it is left out.
        parent_request_id: the id of the call that made this one; ``None`` for an outermost call.
        identity: the caller; ``None`` for an anonymous caller.
        deadline: when the call must have ended, in epoch ms; ``None`` for no deadline.
        trusted: whether to skip the access check. Only code of this process can set it, no message from a peer.
        metadata: values of the application; nested calls receive them too. A handler sees a read-only copy.
        client: receives progress and log messages; set by the server that received the call and passed on to
            nested calls; ``None`` without a client. With MCP it offers more, see `operad_mcp.client_of`.
        idempotency_key: a key that a request and its repetitions have in common; nested calls have their own.
        credentials: the `operad.auth.Credentials` of the caller; set by the server that received the call, for
            `operad_credentials` only. Passed on to nested calls, never to another process.
    """

    request_id: str | None = None
    parent_request_id: str | None = None
    identity: Identity | None = None
    deadline: float | None = None
    registry: Callables | None = attrs.field(default=None, repr=False)
    """The registry that nested calls use; ``None`` in a context that the application made for a call."""
    metadata: Mapping[str, Any] = _NOTHING
    client: CallListener | None = attrs.field(default=None, repr=False)
    idempotency_key: str | None = None
    worker: Worker | None = attrs.field(default=None, repr=False)
    """The worker thread of a plain ``def`` handler; ``None`` if the handler runs in the event loop."""
    watch: Watch | None = attrs.field(default=None, repr=False)
    """The object that passes reports of the call to observers; ``None`` if no observer receives reports."""
    trusted: bool = False
    credentials: Any = attrs.field(default=None, repr=False)
    state: Any = attrs.field(default=None, repr=False)
    """The value that the lifespan of the operation's source, else of the registry, yielded; else ``None``."""

    @property
    def env(self) -> OperationEnv:
        """The operations of the registry, callable as ``await context.env.namespace.name({...})``.

        Such calls are made on behalf of the handler's own code: they are trusted, keep the identity, and end with
        this call's deadline at the latest. For an id that came from outside use `env_as_caller`. Raises
        `RuntimeError` if the context does not belong to a registry.
        """
        return build_env(self._bound(), self)

    @property
    def env_as_caller(self) -> OperationEnv:
        """The same operations as `env`, but with an access check of the caller's identity for every call.

        Use it if the caller chose the operation (a gateway, a generic ``call`` tool). With `env` the handler would
        lend its own authority to the caller (the confused deputy).
        """
        return build_env(self._bound(), self, trusted=False)

    @property
    def cancelled(self) -> bool:
        """Whether the call has ended although this handler still runs in its worker thread."""
        return self.worker is not None and self.worker.cancelled

    def remaining(self) -> float | None:
        """Return the seconds until the deadline, never below 0; ``None`` if the call has no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline / 1000 - time.time())

    def call_sync(
        self, operation_id: str, input: Any = None, *, timeout: float | None = None
    ) -> ResponseEnvelope[Any]:
        """Call an operation from a plain ``def`` handler in its worker thread; the call is made as with `env`.

        Args:
            operation_id: ``namespace.name``.
            input: the input.
            timeout: seconds; the deadline of the handler's own call may end it sooner.

        Raises:
            CallError: the call failed; ``ABORTED`` if the handler's own call has ended.
            RuntimeError: the handler does not run in a worker thread, so that waiting would block the event loop.
        """
        if self.worker is None:
            raise RuntimeError("call_sync works in a plain def handler only; use `await context.env[id](input)`")
        return self.worker.wait_for(self.env[operation_id](input, timeout=timeout))

    def child(self, *, trusted: bool) -> OperationContext:
        """Return the context of a call nested in this one, without an access check if ``trusted`` is true."""
        return OperationContext(
            None, self.request_id, self.identity, self.deadline, trusted=trusted, metadata=self.metadata,
            client=self.client, registry=self.registry, credentials=self.credentials,
        )  # fmt: skip

    # --- the client ------------------------------------------------------------------------------

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to observers and, unless the call is nested, to the client, if there is one.

        Args:
            progress: a number in any unit, which must increase from one report to the next.
            total: the value of ``progress`` when the work is complete; ``None`` if it is not known.
            message: a short text for people.
        """
        if self.watch is not None:
            self.report("progress", message, progress=progress, total=total)
        if self.client is not None and self.parent_request_id is None:
            await self.client.progress(progress, total, message)

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to observers and to the client; without a client, to the Python logger ``operad``.

        Args:
            level: a severity of RFC 5424, 6.2.1: ``debug``, ``info``, ``notice``, ``warning``, ``error``,
                ``critical``, ``alert``, ``emergency``. Raises `ValueError` for any other value.
            data: the message, any JSON value.
            logger: the name of the logger for the client; ``None`` for no name.
        """
        if level not in _LEVELS:
            raise ValueError(f"level: expected one of {', '.join(_LEVELS)}, got {level!r:.60}")
        if self.watch is not None:
            import json

            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=repr)
            self.report("log", text, level=level, logger=logger or "")
        if self.client is None:
            _log(_LEVELS[level], logger, data)
        else:
            await self.client.log(level, data, logger)

    def report(
        self,
        kind: str,
        message: str | None = None,
        *,
        level: str = "info",
        progress: float | None = None,
        total: float | None = None,
        unit: str | None = None,
        **attributes: str | float | bool,
    ) -> None:
        """Send a report of the running call to observers. After the call has ended, nothing is sent.

        The method can be called from any thread that runs a handler. The arguments are the fields of `CallReport`;
        other keywords become its ``attributes``.
        """
        watch = self.watch
        if watch is None:
            return
        report = CallReport(kind, message, level, progress, total, unit, attributes)
        if self.worker is None:
            watch.report(report)
        else:
            self.worker.soon(watch.report, report)

    @property
    def is_observed(self) -> bool:
        """Whether an observer receives reports of the call."""
        return self.watch is not None

    def _bound(self) -> Callables:
        if self.registry is None:
            raise RuntimeError("this context belongs to no registry; use the context that a handler receives")
        return self.registry


def _log(level: int, source: str | None, data: Any) -> None:
    logger.log(level, "%s%s", f"{source}: " if source else "", data)


def build_env(registry: Callables, context: OperationContext, *, trusted: bool = True) -> OperationEnv:
    """Return the operations of ``registry`` as an object, for calls nested in ``context``.

    Args:
        registry: the registry in which each call looks up its operation.
        context: the context of the call that makes the nested calls.
        trusted: whether the nested calls skip the access check; see `OperationContext.env`.
    """
    return OperationEnv(registry, context, trusted)


class OperationEnv:
    """The operations of a registry, for nested calls: ``env.shop.getBook`` or ``env["shop.getBook"]``."""

    __slots__ = ("_context", "_registry", "_trusted")

    def __init__(self, registry: Callables, context: OperationContext, trusted: bool) -> None:
        self._registry = registry
        self._context = context
        self._trusted = trusted

    def __getitem__(self, operation_id: str) -> BoundOperation:
        return BoundOperation(self, operation_id)

    def __getattr__(self, namespace: str) -> BoundNamespace:
        if namespace.startswith("__"):  # copy, pickle and inspect look up such names
            raise AttributeError(namespace)
        return self.namespace(namespace)

    def namespace(self, namespace: str) -> BoundNamespace:
        """Return the operations of a namespace; for names that are not Python identifiers, such as ``my-shop``."""
        return BoundNamespace(self, namespace)

    def __dir__(self) -> list[str]:
        return sorted({spec.namespace for spec in self._registry.specs()})

    def __iter__(self) -> Iterator[str]:
        return (spec.id for spec in self._registry.specs())


class BoundNamespace:
    """The operations of a namespace, for nested calls: ``ns.name`` or ``ns["pulls/create"]``."""

    __slots__ = ("_env", "_namespace")

    def __init__(self, env: OperationEnv, namespace: str) -> None:
        self._env = env
        self._namespace = namespace

    def __getitem__(self, name: str) -> BoundOperation:
        return BoundOperation(self._env, f"{self._namespace}.{name}")

    def __getattr__(self, name: str) -> BoundOperation:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[operation_name(self._env._registry, self._namespace, name) if "_" in name else name]

    def __dir__(self) -> list[str]:
        return list(attributes_of(self._env._registry, self._namespace))


@record(eq=False)
class BoundOperation:
    """An operation that a handler can call; the call is nested in the handler's own call."""

    _env: OperationEnv = attrs.field(repr=False)
    id: str

    async def __call__(
        self, input: Any = None, /, *, timeout: float | None = None, **fields: Any
    ) -> ResponseEnvelope[Any]:
        """Call the operation with an input object, or with its fields as keywords. Raises `CallError` if it fails.

        Args:
            input: the input.
            timeout: seconds; the deadline of the handler's own call may end it sooner.
            fields: the fields of the input, instead of ``input``. If a field's name cannot be a keyword argument,
                use the keyword that `keyword_names` returns, such as ``from_`` for ``from``.
        """
        env = self._env
        given = input_of(env._registry, self.id, input, fields)
        return await env._registry.execute(
            self.id, given, env._context.child(trusted=env._trusted), timeout=timeout
        )

    def subscribe(self, input: Any = None, /, *, timeout: float | None = None, **fields: Any) -> Subscription:
        """Subscribe to the operation with the arguments of a call; ``timeout`` limits the wait for each item."""
        env = self._env
        given = input_of(env._registry, self.id, input, fields)
        return env._registry.subscribe(self.id, given, env._context.child(trusted=env._trusted), timeout=timeout)
