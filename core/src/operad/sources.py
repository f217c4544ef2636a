"""The classes with which plugins contribute sources, servers and tables, and the context of a source."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import attrs

from operad.envelopes import EnvelopeKinds
from operad.errors import ConfigError, OperadError, SourceError
from operad.observers import Observers
from operad.operations import Operation
from operad.records import record
from operad.words import in_words

if TYPE_CHECKING:
    from operad.transports import Transport
    from operad.usage import Usage

OnChange = Callable[[Sequence[Operation[..., Any]]], None]


def from_folder(folder: Path, path: str | Path) -> Path:
    """Return a path of a configuration as an absolute path: from ``folder``, or from the home directory for ``~``.

    Raises `ConfigError` for ``~name`` if the user is unknown or has no home directory.
    """
    try:
        return folder.joinpath(Path(path).expanduser()).absolute()
    except RuntimeError:
        raise ConfigError(f"{path}: no such user, or the user has no home directory; write a full path") from None


class PluginsLike(Protocol):
    """The part of the application's plugins that a source may use."""

    @property
    def envelope_kinds(self) -> EnvelopeKinds:
        """The envelope kinds of the core and of all plugins."""

    def observers(self) -> Observers:
        """Return the observers of calls that plugins implement."""

    def transport(self, url: str, **options: Any) -> Transport:
        """Return the transport for a URL; see `Plugins.transport`."""


@record(kw_only=True)
class SourceContext:
    """The context in which a source is loaded, the second argument of the source's ``load``."""

    plugins: PluginsLike
    """The plugins of the application."""
    name: str | None = None
    """The name of the source's table; ``None`` if it was loaded from Python."""
    namespace: str | None = None
    """The namespace in the configuration; if it is ``None``, the source chooses one."""
    base_dir: Path | None = None
    """The folder from which relative paths start; ``None`` means the current folder."""
    trusted: bool = False
    """Whether the configuration trusts the source's documents to refer to other files and addresses."""
    registry: Any = attrs.field(default=None, repr=False)
    """The `OperationRegistry` that loads the source."""
    operation: str | None = None
    """The only operation that will be called, by id, so that the source may load just this one; else ``None``."""
    logger: logging.Logger = attrs.field(factory=lambda: logging.getLogger("operad"))
    """The logger for diagnostics: ``operad.<name of the source plugin>``."""

    def path(self, path: str | Path) -> Path:
        """Return ``path`` as an absolute path from ``base_dir``; see `from_folder` for ``~`` and errors."""
        return from_folder(self.base_dir or Path.cwd(), path)


class SourceSession:
    """The operations of one loaded source, for as long as the registry holds it.

    Subclass it to close connections in `aclose`, and call `changed` when the operations have changed.
    """

    usage: Usage | None = None
    """A started `Lifespan`, whose state the handlers receive; ``None`` without one. A source may replace it, then
    call `changed`; calls in progress keep the previous one, which the source closes."""

    def __init__(self, operations: Sequence[Operation[..., Any]] = ()) -> None:
        self._operations = tuple(operations)
        self._callbacks: list[OnChange] = []

    @property
    def operations(self) -> Sequence[Operation[..., Any]]:
        """The current operations of the source."""
        return self._operations

    @property
    def held(self) -> Mapping[str, str]:
        """Reasons by operation id why the source does not register an operation; errors of calls contain them."""
        return {}

    def on_change(self, callback: OnChange) -> None:
        """Call ``callback`` with all current operations after each change."""
        self._callbacks.append(callback)

    def changed(self, operations: Sequence[Operation[..., Any]]) -> None:
        """Replace the operations and notify the callbacks. Call it in the event loop only."""
        self._operations = tuple(operations)
        for callback in self._callbacks:
            callback(self._operations)

    async def describe(self, operation_id: str) -> None:
        """Load the missing parts of an operation's spec, then call `changed`. By default, do nothing."""

    async def aclose(self) -> None:
        """Close all connections and files that the source opened; idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


ConfigType = type[Any] | Callable[[], type[Any]]
"""An attrs class, or a function that returns it, called when it is needed: making a large class takes
milliseconds.
"""


class _Configured:
    """A contribution with options of its own."""

    __slots__ = ()

    name: str
    _config: ConfigType

    @property
    def config_type(self) -> type[Any]:
        """The attrs class of the options."""
        return _attrs_class(self, self._config if isinstance(self._config, type) else self._config())


def _attrs_class(owner: _Configured, value: object) -> type[Any]:
    if isinstance(value, type) and attrs.has(value):
        return value
    kind = type(owner).__name__.lower()
    raise TypeError(f'{kind} "{owner.name}": config_type must be an attrs class, got {value!r:.80}')


def _config_type(owner: _Configured, _: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, type) or not callable(value):  # otherwise it is called when it is needed
        _attrs_class(owner, value)


@record
class Source(_Configured):
    """A kind of source that a plugin contributes.

    Args:
        name: the name in ``registry.load(name, …)`` and in ``type = "name"`` of a configuration.
        load: ``await load(config, context)`` opens the source and returns a `SourceSession`; ``config`` is an
            instance of ``config_type``. It raises `SourceError` with the reason and the fix.
        config_type: an attrs class, or a function that returns one; its fields are the options. Unknown options
            are rejected before ``load`` is called.
        description: one line about the source.
        login: ``await login(config, context, account)`` returns the `operad.auth.Login` with which ``operad login
            NAME --account ACCOUNT`` logs a person in (``account`` is ``None`` without the option). It connects to
            nothing. It raises `ConfigError` if this configuration needs no login. By default, login is an error.
    """

    name: str
    load: Callable[[Any, SourceContext], Awaitable[SourceSession]]
    _config: ConfigType = attrs.field(alias="config_type", validator=_config_type)
    description: str = ""
    login: Callable[[Any, SourceContext, str | None], Awaitable[Any]] | None = None

    async def open(self, config: Any, context: SourceContext) -> SourceSession:
        """Load the source and return its session.

        Raises:
            OperadError: ``load`` raised this error.
            SourceError: ``load`` raised another exception, or did not return a `SourceSession`.
        """
        try:
            session = await self.load(config, context)
        except OperadError:
            raise
        except Exception as error:
            import traceback

            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename}:{frame.lineno}"
            raise SourceError(f'source "{self.name}" raised {in_words(error)} at {place}') from error
        if not all(hasattr(session, name) for name in ("operations", "on_change", "aclose")):
            got = type(session).__name__
            raise SourceError(f'source "{self.name}": load must return a SourceSession, got {got}')
        return session


@record
class Server(_Configured):
    """A kind of server that a plugin contributes; a server offers the operations of a registry to clients.

    Args:
        name: its name on the command line and in the configuration.
        serve: ``await serve(registry, config)`` serves until it is cancelled.
        config_type: an attrs class, or a function that returns one; its fields are the options, ``[serve.<name>]``
            of a configuration. Fields with the names of `[serve]`'s own keys (``timeout``, ``max_body``,
            ``allowed_hosts``, …) get those values unless the server's table sets them.
        app: ``app(registry, config)`` returns an ASGI 3 application, which `operad serve` runs with others on one
            address; ``None`` without such an application. It may have a method ``async drain(timeout)``, which
            rejects new calls, ends streams and waits for calls in progress, for at most ``timeout`` seconds. The
            scope of a request contains the caller, see `operad_serve.asgi.Gate`.
        mount: the application's path on that address: exactly this path, or with ``/`` every other path.
    """

    name: str
    serve: Callable[..., Awaitable[None]]
    _config: ConfigType = attrs.field(alias="config_type", validator=_config_type)
    app: Callable[[Any, Any], Callable[..., Any]] | None = None
    mount: str = "/"


@record
class Table(_Configured):
    """A table of the configuration that a plugin reads itself, such as ``[hub]``: `operad doctor` checks it.

    Args:
        name: one of `operad.config.file.TABLES`.
        config_type: an attrs class, or a function that returns one; its fields are the keys.
        description: one line about the table.
        check: ``check(config, base_dir)`` checks the files that the keys name, and starts nothing. Relative paths
            start from ``base_dir``. It raises `ConfigError` for a file that cannot be used.
    """

    name: str
    _config: ConfigType = attrs.field(alias="config_type", validator=_config_type)
    description: str = ""
    check: Callable[[Any, Path], object] | None = None
