"""The registry for programs without an event loop: Flask, Django's views, scripts, notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from operad.access import AccessControl
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.functions.handles import Browsable
from operad.operations import Handler, Operation, OperationSpec
from operad.registry.registry import OperationRegistry as AsynchronousRegistry
from operad.sync.calling import WaitingCalls
from operad.sync.portal import Portal, portal
from operad.sync.streams import Subscription

if TYPE_CHECKING:
    from operad.observers import MaybeObserver
    from operad.plugins.manager import Plugins
    from operad.registry.loading import SourceFailure
    from operad.registry.views import Rename


class OperationRegistry(WaitingCalls, Browsable):
    """An `operad.OperationRegistry` whose calls wait for their answers, from any thread.

    All of them run in one event loop in the background, beside whatever loop this thread may run. Use it as a
    context manager, or `close` it; what is still open when the process ends is closed then.

    Args:
        plugins: as of the asynchronous registry, as all options.
        options: ``normalize``, ``on_mismatch``, ``max_threads``.
    """

    asynchronous: AsynchronousRegistry
    """The registry behind this one; whatever awaits has to run in the background loop."""

    def __init__(self, plugins: Plugins | None = None, **options: Any) -> None:
        self._bind(AsynchronousRegistry(plugins, **options))

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], plugins: Plugins | None = None, **options: Any) -> Self:
        """The registry that a configuration file describes; entering it (or `open`) loads the sources."""
        made = cls.__new__(cls)
        made._bind(AsynchronousRegistry.from_config(path, plugins, **options))
        return made

    def _bind(self, registry: AsynchronousRegistry, *, is_view: bool = False) -> None:
        self.asynchronous = registry
        self._is_view = is_view
        self._loaded_by: int | None = None  # the process whose connections the sources have

    def _portal(self) -> Portal:
        if self._loaded_by not in (None, os.getpid()):
            raise RuntimeError(
                "the sources of this registry were loaded before the process forked, and their connections are "
                "the parent's: open a registry in each process"
            )
        return portal()

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> Self:
        """Load the sources of the configuration, if there is one. Raises as `from_config`'s sources do."""
        here = self._portal()
        here.run(self.asynchronous.__aenter__())
        if self.asynchronous.sources.states():
            self._loaded_by = os.getpid()
        here.keep(self)
        return self

    def close(self) -> None:
        """Close what the sources opened. Idempotent; of a view, and in a forked child, nothing."""
        if self._loaded_by in (None, os.getpid()) and not self._is_view:
            here, self._loaded_by = portal(), None
            here.run(self.asynchronous.aclose())
            here.forget(self)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, source: str, **options: Any) -> list[OperationSpec]:
        """Load the operations of a source; as `operad.OperationRegistry.load`."""
        here = self._portal()
        specs = here.run(self.asynchronous.load(source, **options))
        self._loaded_by = os.getpid()
        here.keep(self)
        return specs

    @property
    def failures(self) -> list[SourceFailure]:
        """Sources of the configuration that could not be loaded."""
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
        """Add an operation: a spec and its handler, or an `Operation`. Raises `RegistrationError`."""
        handlers = () if handler is None else (handler,)
        register: Callable[..., None] = self.asynchronous.register
        self._portal().call(register, spec, *handlers, replace=replace)

    def register_spec(self, spec: OperationSpec, *, replace: bool = False) -> None:
        """Add a spec without its handler. Raises `RegistrationError`."""
        self._portal().call(self.asynchronous.register_spec, spec, replace=replace)

    def register_handler(
        self, operation_id: str, handler: Handler, *, blocking: bool | None = None, replace: bool = False
    ) -> None:
        """Add a handler, before or after its spec. Raises `RegistrationError`."""
        register: Callable[..., None] = self.asynchronous.register_handler
        self._portal().call(register, operation_id, handler, blocking=blocking, replace=replace)

    def unregister(self, operation_id: str) -> None:
        """Remove an operation. Raises `RegistrationError` if there is none of that id."""
        self._portal().call(self.asynchronous.unregister, operation_id)

    def use(self, interceptor: Any = None, **options: Any) -> Callable[[], None]:
        """Put an interceptor, which is asynchronous, around calls; as `operad.OperationRegistry.use`."""
        here = self._portal()
        remove = here.call(self.asynchronous.use, interceptor, **options)
        return lambda: here.call(remove)

    def observe(
        self, started: MaybeObserver = None, finished: MaybeObserver = None, reported: MaybeObserver = None
    ) -> Callable[[], None]:
        """Let functions see each call, in the background loop; as `operad.OperationRegistry.observe`."""
        here = self._portal()
        remove = here.call(self.asynchronous.observe, started, finished, reported)
        return lambda: here.call(remove)

    def __len__(self) -> int:
        return len(self.asynchronous)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self.asynchronous

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """The spec of an operation, or ``None``."""
        return self._portal().call(self.asynchronous.get_spec, operation_id)

    def get_handler(self, operation_id: str) -> Handler | None:
        """The handler of an operation, or ``None``."""
        return self._portal().call(self.asynchronous.get_handler, operation_id)

    def describe(self, operation_id: str) -> OperationSpec | None:
        """As `get_spec`, complete."""
        return self._portal().run(self.asynchronous.describe(operation_id))

    def specs(self) -> Sequence[OperationSpec]:
        """All specs, sorted by id."""
        return self._portal().call(self.asynchronous.specs)

    def search(self, query: str, limit: int = 10) -> list[OperationSpec]:
        """The operations that fit ``query`` best, best first."""
        return self._portal().call(self.asynchronous.search, query, limit)

    def view(
        self,
        *,
        include: str | Iterable[str] = "*",
        exclude: str | Iterable[str] = (),
        prefix: str | None = None,
        rename: Rename | None = None,
        access: AccessControl | Mapping[str, Any] | None = None,
    ) -> Self:
        """A part of this registry; as `operad.OperationRegistry.view`."""
        options = {"include": include, "exclude": exclude, "prefix": prefix, "rename": rename, "access": access}
        view: Callable[..., AsynchronousRegistry] = self.asynchronous.view
        made = type(self).__new__(type(self))
        made._bind(self._portal().call(view, **options), is_view=True)
        made._loaded_by = self._loaded_by
        return made

    def execute(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation and wait for its envelope; as `operad.OperationRegistry.execute`.

        Raises:
            CallError: and nothing else, but what interrupts this thread.
        """
        return self._portal().run(
            self.asynchronous.execute(
                operation_id, input, context, timeout=timeout, idempotency_key=idempotency_key
            )
        )

    def download(
        self, operation_id: str, input: Any = None, context: OperationContext | None = None
    ) -> Subscription[bytes]:
        """The bytes of an answer, piece by piece; as `operad.OperationRegistry.download`."""
        here = self._portal()
        return Subscription(here, here.call(self.asynchronous.download, operation_id, input, context))
