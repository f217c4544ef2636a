"""The hooks of operad: what a plugin can contribute, and when each hook is called.

A plugin is a module (the target of an entry point of group ``operad``) with functions of these names, each marked
with `hookimpl`. The hooks for envelope kinds, sources, servers and transports are called once, when the plugin is
loaded. Only ``operad_resolve_operation`` and the three observers, ``operad_call_…``, are called during calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from operad.auth import CredentialProvider
    from operad.calls import CallMap, CallServer, Options
    from operad.envelopes import EnvelopeKind
    from operad.observers import CallOutcome, CallRecord, CallReport
    from operad.operations import Operation, OperationSpec
    from operad.registry.interceptors import Interceptor
    from operad.registry.registry import OperationRegistry
    from operad.registry.search import SearchIndex
    from operad.sources import Server, Source, Table
    from operad.transports import Transport, TransportFactory

PROJECT = "operad"
API_VERSION = 1
"""The version of these hooks. A plugin is not loaded if its ``operad_api_version`` is a different number."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook of the same name."""


# --- envelopes ---------------------------------------------------------------------------------------


@hookspec
def operad_envelope_kinds() -> Iterable[EnvelopeKind]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return the kinds of envelopes that the plugin's operations return.

    If the ``source`` of one of them is already taken, the plugin is not loaded.
    """


# --- registry ----------------------------------------------------------------------------------------


@hookspec
def operad_sources() -> Iterable[Source]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return sources for ``registry.load(name, …)``. If the name of one is taken, the plugin is not loaded."""


@hookspec
def operad_interceptors(registry: OperationRegistry) -> Iterable[Interceptor]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return interceptors of calls (see `OperationRegistry.use`) for a registry that is being made.

    ``registry.configured(…)`` returns a table of the configuration. If the hook raises, no registry is made,
    because a call that the plugin would have rejected must not run.
    """


@hookspec
def operad_credentials(registry: OperationRegistry) -> Iterable[CredentialProvider]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return providers of credentials, with which sources act on behalf of the caller of each call.

    The hook is called when a source first needs a provider. Two providers of the same name cause a `ConfigError`.
    """


@hookspec(firstresult=True)
def operad_resolve_operation(operation_id: str) -> Operation[..., Any] | None:
    """Return the operation for an id that a registry does not have; ``None`` if the plugin does not know the id.

    The hook is meant for catalogues that are too large to list, and may be a coroutine function. The first result
    that is not ``None`` is used, and the registry keeps it.
    """


@hookspec(firstresult=True)
def operad_search() -> Callable[[Iterable[OperationSpec]], SearchIndex] | None:
    """Return a function that makes a registry's search index from its specs, or ``None`` to offer no index.

    The first result that is not ``None`` is used. If every result is ``None``, search counts matching words.
    """


@hookspec
def operad_register_operations(registry: OperationRegistry) -> None:
    """Register the plugin's own operations in a registry that was just made. An exception is logged."""


@hookspec
def operad_operation_added(spec: OperationSpec) -> None:
    """Observe that an operation was added to a registry. An exception is logged."""


@hookspec
def operad_operation_removed(spec: OperationSpec) -> None:
    """Observe that an operation was removed from a registry. An exception is logged."""


@hookspec
def operad_servers() -> Iterable[Server]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return servers, which offer a registry to clients. If the name of one is taken, the plugin is not loaded."""


@hookspec
def operad_tables() -> Iterable[Table]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return the tables of the configuration that the plugin reads itself, with their keys."""


@hookspec
def operad_commands(cli: Any) -> None:
    """Add commands to ``cli``, a ``click.Group``, when the command line starts. An exception is logged."""


# --- call map ----------------------------------------------------------------------------------------


@hookspec
def operad_transports() -> Iterable[TransportFactory]:  # type: ignore[empty-body]  # hookspecs have no body
    """Return factories of transports. If a URL scheme of one is taken, the plugin is not loaded."""


@hookspec(firstresult=True)
def operad_call_map(transport: Transport, options: Options) -> CallMap | None:
    """Return a call map for a transport, or ``None`` if this plugin does not support the transport.

    ``transport`` may be of any class; ``options`` are the caller's keyword arguments. The hook connects nothing.
    The implementation of operad-calls comes last and accepts every transport that implements `Transport`.
    """


@hookspec(firstresult=True)
def operad_call_server(registry: OperationRegistry, transport: Transport, options: Options) -> CallServer | None:
    """Return a call server for a registry and a transport; all rules of `operad_call_map` apply, also ``None``."""


@hookspec
def operad_call_started(call: CallRecord) -> None:
    """Observe a call before it runs. The hook must not block the event loop. An exception is logged."""


@hookspec
def operad_call_reported(call: CallRecord, report: CallReport) -> None:
    """Observe a report of a running call, such as its progress; the rules of `operad_call_started` apply."""


@hookspec
def operad_call_finished(call: CallRecord, outcome: CallOutcome) -> None:
    """Observe the end of a call, with a result or an error; the rules of `operad_call_started` apply."""
