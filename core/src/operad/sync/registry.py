"""The registry for programs without an event loop: Flask, Django's views, scripts, notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from operad.access import AccessControl
from operad.functions.handles import Browsable
from operad.operations import Handler, Operation, OperationSpec
from operad.registry.registry import OperationRegistry as AsynchronousRegistry
from operad.sync.calling import WaitingCalls, in_loop, iterating, waiting
from operad.sync.portal import Opened, portal

if TYPE_CHECKING:
    from operad.loading.sources import SourceFailure
    from operad.observers import MaybeObserver
    from operad.plugins.manager import Plugins
    from operad.registry.views import Rename


class OperationRegistry(Opened, WaitingCalls, Browsable):
    """An `operad.OperationRegistry` with blocking calls, usable from any thread.

    All calls run in one event loop in the background, even if this thread runs a loop of its own. Use it as a
    context manager, or `close` it; a registry that is still open when the process ends is closed then.

    Args:
        plugins: as for the asynchronous registry.
        options: other arguments of the asynchronous registry, such as ``normalize`` and ``lifespan``.
    """

    asynchronous: AsynchronousRegistry
    """The registry behind this one; its coroutines must run in the background loop."""

    def __init__(self, plugins: Plugins | None = None, **options: Any) -> None:
        self._bind(AsynchronousRegistry(plugins, **options))

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], plugins: Plugins | None = None, **options: Any) -> Self:
        """Return the registry that a configuration file describes; entering it (or `open`) loads the sources.

        See `operad.OperationRegistry.from_config` for options and errors.
        """
        made = cls.__new__(cls)
        made._bind(AsynchronousRegistry.from_config(path, plugins, **options))
        return made

    def _bind(self, registry: AsynchronousRegistry, *, is_view: bool = False) -> None:
        self.asynchronous = registry
        self._is_view = is_view

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> Self:
        """Start the lifespan and load the sources of the configuration, if there are any; return this registry.

        Raises `SourceError` if the lifespan fails, and the errors of `operad.OperationRegistry.load_configured`.
        """
        here = self._portal()
        here.run(self.asynchronous.__aenter__())
        if self.asynchronous.sources.states() or self.asynchronous.lifespan:
            self._opened_by = os.getpid()
        here.keep(self)
        return self

    def close(self) -> None:
        """Close the sources and the lifespan. Idempotent; does nothing for a view and in a forked child."""
        if self._opened_by in (None, os.getpid()) and not self._is_view:
            here, self._opened_by = portal(), None
            here.run(self.asynchronous.aclose())
            here.forget(self)

    def load(self, source: str, **options: Any) -> list[OperationSpec]:
        """Load the operations of a source and return their specs; see `operad.OperationRegistry.load`."""
        here = self._portal()
        specs = here.run(self.asynchronous.load(source, **options))
        self._opened_by = os.getpid()
        here.keep(self)
        return specs

    @property
    def failures(self) -> list[SourceFailure]:
        """The sources of the configuration that could not be loaded, with their errors."""
        return self.asynchronous.failures

    # --- registering and looking up --------------------------------------------------------------

    def register(
        self,
        spec: OperationSpec | Operation[..., Any],
        handler: Handler | None = None,
        /,
        *,
        replace: bool = False,
    ) -> None:
        """Add a spec and its handler, or an `Operation`; for errors see `operad.OperationRegistry.register`."""
        handlers = () if handler is None else (handler,)
        register: Callable[..., None] = self.asynchronous.register
        self._portal().call(register, spec, *handlers, replace=replace)

    register_spec = in_loop(AsynchronousRegistry.register_spec)
    register_handler = in_loop(AsynchronousRegistry.register_handler)
    unregister = in_loop(AsynchronousRegistry.unregister)
    get_spec = in_loop(AsynchronousRegistry.get_spec)
    get_handler = in_loop(AsynchronousRegistry.get_handler)
    specs = in_loop(AsynchronousRegistry.specs)
    __len__ = in_loop(AsynchronousRegistry.__len__)
    __contains__ = in_loop(AsynchronousRegistry.__contains__)
    search = in_loop(AsynchronousRegistry.search)
    describe = waiting(AsynchronousRegistry.describe)
    execute = waiting(AsynchronousRegistry.execute)
    download = iterating(AsynchronousRegistry.download)

    def use(self, interceptor: Any = None, **options: Any) -> Callable[[], None]:
        """Add an asynchronous interceptor; return a function to remove it. See `operad.OperationRegistry.use`."""
        here = self._portal()
        remove = here.call(self.asynchronous.use, interceptor, **options)
        return lambda: here.call(remove)

    def observe(
        self, started: MaybeObserver = None, finished: MaybeObserver = None, reported: MaybeObserver = None
    ) -> Callable[[], None]:
        """Observe all calls with functions that run in the background loop; call the returned function to stop.

        See `operad.OperationRegistry.observe`.
        """
        here = self._portal()
        remove = here.call(self.asynchronous.observe, started, finished, reported)
        return lambda: here.call(remove)

    def view(
        self,
        *,
        include: str | Iterable[str] = "*",
        exclude: str | Iterable[str] = (),
        prefix: str | None = None,
        rename: Rename | None = None,
        access: AccessControl | Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a read-only part of this registry; see `operad.OperationRegistry.view` for the arguments."""
        options = {"include": include, "exclude": exclude, "prefix": prefix, "rename": rename, "access": access}
        view: Callable[..., AsynchronousRegistry] = self.asynchronous.view
        made = type(self).__new__(type(self))
        made._bind(self._portal().call(view, **options), is_view=True)
        made._opened_by = self._opened_by
        return made
