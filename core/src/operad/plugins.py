"""Finding and holding plugins. One that fails is reported and leaves the others untouched.

Everything that plugins contribute lives on a `Plugins` object. Nothing is global: two applications, or two
tests, in one process never see each other's plugins.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs
import pluggy

from operad import hookspecs
from operad.envelopes import EnvelopeKind, EnvelopeKinds
from operad.errors import PluginError
from operad.observers import Observers
from operad.sources import Server, Source
from operad.transports import Transport, TransportFactory

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger("operad")

T = TypeVar("T")

ENTRY_POINT_GROUP = "operad"

PluginStatus = Literal["loaded", "failed", "disabled", "conflict", "incompatible"]

_FIRST_PARTY = {
    "sources": {"openapi": "operad-openapi", "mcp": "operad-mcp", "scanner": "operad-scanner"},
    "envelope_kinds": {"http": "operad-openapi", "mcp": "operad-mcp"},
    "transports": {
        "ws": "operad-websocket",
        "wss": "operad-websocket",
        "nats": "operad-nats",
        "tls+nats": "operad-nats",
        "redis": "operad-redis",
        "rediss": "operad-redis",
    },
    "servers": {"openapi": "operad-openapi", "mcp": "operad-mcp"},
}
"""Which distribution to install for what: only for the hint in an error."""


@attrs.frozen
class PluginRecord:
    """What became of one plugin."""

    name: str
    """The entry point's name."""
    distribution: str | None = None
    """The distribution that it came in; ``None`` for a plugin registered by the application itself."""
    version: str | None = None
    status: PluginStatus = "loaded"
    error: str | None = None
    """Why it is not loaded, and what mends it."""
    contributes: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Names of what it contributes, by kind: ``sources``, ``envelope_kinds``, ``transports``, ``servers``, ``hooks``."""

    @property
    def label(self) -> str:
        """Name and origin, for messages."""
        if self.distribution is None:
            return f'"{self.name}"'
        return f'"{self.name}" ({self.distribution} {self.version or "unknown version"})'


class Plugins:
    """The plugins of one application, and what they contribute.

    ``Plugins()`` knows the core alone; `load_plugins` adds what is installed.
    """

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._records: list[PluginRecord] = []
        self._owners: dict[tuple[str, str], PluginRecord] = {}
        self._sources: dict[str, Source] = {}
        self._servers: dict[str, Server] = {}
        self._transports: dict[str, TransportFactory] = {}
        self.envelope_kinds = EnvelopeKinds()
        """The known envelope kinds."""

    # --- what there is ---------------------------------------------------------------------------

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """What became of each plugin, in the order of loading."""
        return tuple(self._records)

    def __iter__(self) -> Iterator[PluginRecord]:
        return iter(self.records)

    @property
    def sources(self) -> Mapping[str, Source]:
        """Sources by name; read-only."""
        return MappingProxyType(self._sources)

    @property
    def servers(self) -> Mapping[str, Server]:
        """Servers by name; read-only."""
        return MappingProxyType(self._servers)

    @property
    def transports(self) -> Mapping[str, TransportFactory]:
        """Transport factories by URL scheme; read-only."""
        return MappingProxyType(self._transports)

    def source(self, name: str) -> Source:
        """The source of that name. Raises `PluginError` with the distribution to install."""
        return self._get(self._sources, "sources", name)

    def server(self, name: str) -> Server:
        """The server of that name. Raises `PluginError` with the distribution to install."""
        return self._get(self._servers, "servers", name)

    def transport(self, url: str, **options: Any) -> Transport:
        """The transport for a URL; nothing is connected yet.

        Args:
            url: such as ``nats://127.0.0.1:4222``; its scheme chooses the plugin.
            options: what the plugin's factory takes besides the URL.

        Raises:
            PluginError: no plugin answers to the scheme; the message names the distribution to install.
        """
        scheme, separator, _ = url.partition("://")
        if not separator:
            raise PluginError(f'transport URL "{url}": expected scheme://…, such as ws://127.0.0.1:8765')
        return self._get(self._transports, "transports", scheme.lower()).create(url, **options)

    def _get(self, table: Mapping[str, T], kind: str, name: str) -> T:
        if name in table:
            return table[name]
        word = kind.removesuffix("s")
        distribution = _FIRST_PARTY[kind].get(name)
        broken = next((r for r in self._records if r.error and distribution in (r.distribution, r.name)), None)
        if broken is not None and distribution is not None:
            hint = f"; its plugin {broken.label} is {broken.status}: {broken.error}"
        elif distribution is not None:
            hint = f"; install it: pip install {distribution}"
        else:
            hint = "; no installed plugin offers it"
        known = ", ".join(sorted(table)) or "none"
        raise PluginError(f'there is no {word} "{name}"{hint}. Known: {known}.')

    # --- hooks -----------------------------------------------------------------------------------

    def implementations(self, hook: str) -> tuple[Callable[..., Any], ...]:
        """The implementations of a hook, each called on its own with keywords, in the order of loading."""
        caller = getattr(self._manager.hook, hook)
        found = sorted(caller.get_hookimpls(), key=lambda impl: self._manager_order(impl.plugin))
        return tuple(_callable(impl) for impl in found)

    def _manager_order(self, plugin: object) -> int:
        return [item for _, item in self._manager.list_name_plugin()].index(plugin)

    def observers(self) -> Observers:
        """The observers of calls."""
        return Observers(self.implementations("operad_call_started"), self.implementations("operad_call_finished"))

    # --- adding ----------------------------------------------------------------------------------

    def register(
        self,
        plugin: object,
        name: str | None = None,
        *,
        distribution: str | None = None,
        version: str | None = None,
    ) -> PluginRecord:
        """Add a plugin: a module or object with hook implementations. All of it, or nothing.

        Args:
            plugin: the module or object.
            name: its name; that of the module or class by default.
            distribution: the distribution that it came in.
            version: that distribution's version.

        Raises:
            PluginError: the plugin is incompatible, has a misspelt hook, or conflicts with another one.
        """
        name = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        record = PluginRecord(name, distribution, version)
        try:
            record = self._register(plugin, record)
        except _Refused as refused:
            record = attrs.evolve(record, status=refused.status, error=str(refused))
            self._records.append(record)
            raise PluginError(f"plugin {record.label}: {refused}") from refused.__cause__
        self._records.append(record)
        return record

    def _register(self, plugin: object, record: PluginRecord) -> PluginRecord:
        version = getattr(plugin, "operad_api_version", hookspecs.API_VERSION)
        if version != hookspecs.API_VERSION:
            raise _Refused(
                "incompatible",
                f"it is written for version {version!r} of operad's plugin API, this operad has version "
                f"{hookspecs.API_VERSION}; install a version of the plugin for this operad",
            )
        if self._manager.is_registered(plugin) or self._manager.has_plugin(record.name):
            other = next((r for r in self._records if r.name == record.name), record)
            raise _Refused(
                "conflict", f"a plugin of this name is loaded already: {other.label}; disable one of them"
            )
        _check_marks(plugin)
        try:
            self._manager.register(plugin, record.name)
            self._manager.check_pending()
            contributions = self._contributions(plugin, record)
        except BaseException as error:
            if self._manager.is_registered(plugin):
                self._manager.unregister(plugin)
            if isinstance(error, (_Refused, KeyboardInterrupt)):
                raise
            raise _Refused("failed", _describe(error)) from error
        names = contributions.add_to(self)
        record = attrs.evolve(record, contributes={**names, **_other_hooks(self._manager, plugin)})
        for kind, items in names.items():
            for item in items:
                self._owners[kind, item] = record
        return record

    def _contributions(self, plugin: object, record: PluginRecord) -> _Contributions:
        """What the plugin contributes, each hook called on its own, checked before any of it is added."""
        found = _Contributions()
        for hook, kind, expected in _CONTRIBUTING:
            for impl in getattr(self._manager.hook, hook).get_hookimpls():
                if impl.plugin is not plugin:
                    continue
                try:
                    items = list(impl.function() or ())
                except Exception as error:
                    raise _Refused("failed", f"{hook} raised {_describe(error)}") from error
                for item in items:
                    if not isinstance(item, expected):
                        raise _Refused(
                            "failed", f"{hook} has to return {expected.__name__}s, got {type(item).__name__}"
                        )
                    for name in _names(item):
                        self._check_free(kind, name, item, found)
                        found.items[kind][name] = item
        return found

    def _check_free(self, kind: str, name: str, item: Any, found: _Contributions) -> None:
        owner = self._owners.get((kind, name))
        word = kind.removesuffix("s").replace("_", " ")
        if owner is not None:
            raise _Refused(
                "conflict", f'{word} "{name}" is contributed by {owner.label} already; disable one of the two'
            )
        if name in found.items[kind]:
            raise _Refused("conflict", f'it contributes {word} "{name}" twice')
        if kind == "envelope_kinds" and name in self.envelope_kinds and self.envelope_kinds.get(name) != item:
            raise _Refused("conflict", f'envelope kind "{name}" belongs to the core')

    def _add_record(self, record: PluginRecord) -> None:
        self._records.append(record)


_CONTRIBUTING: tuple[tuple[str, str, type[Any]], ...] = (
    ("operad_envelope_kinds", "envelope_kinds", EnvelopeKind),
    ("operad_sources", "sources", Source),
    ("operad_transports", "transports", TransportFactory),
    ("operad_servers", "servers", Server),
)


@attrs.define
class _Contributions:
    items: dict[str, dict[str, Any]] = attrs.field(factory=lambda: {kind: {} for _, kind, _ in _CONTRIBUTING})

    def add_to(self, plugins: Plugins) -> dict[str, tuple[str, ...]]:
        for kind in self.items["envelope_kinds"].values():
            plugins.envelope_kinds.add(kind)
        plugins._sources.update(self.items["sources"])
        plugins._transports.update(self.items["transports"])
        plugins._servers.update(self.items["servers"])
        return {kind: tuple(items) for kind, items in self.items.items() if items}


class _Refused(Exception):
    """Why a plugin is not registered."""

    def __init__(self, status: PluginStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def _names(item: Any) -> tuple[str, ...]:
    if isinstance(item, TransportFactory):
        return item.schemes
    return (item.source if isinstance(item, EnvelopeKind) else item.name,)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _check_marks(plugin: object) -> None:
    """Refuse a function with a hook's name and no mark: it would never be called, in silence."""
    for name in vars(hookspecs):
        function = getattr(plugin, name, None) if name.startswith("operad_") else None
        if callable(function) and not hasattr(function, f"{hookspecs.PROJECT}_impl"):
            raise _Refused("failed", f"{name} is not marked: put @hookimpl (from operad.plugin) above it")


def _other_hooks(manager: pluggy.PluginManager, plugin: object) -> dict[str, tuple[str, ...]]:
    contributing = {hook for hook, _, _ in _CONTRIBUTING}
    callers = manager.get_hookcallers(plugin) or ()
    names = tuple(sorted(caller.name for caller in callers if caller.name not in contributing))
    return {"hooks": names} if names else {}


def _callable(impl: pluggy.HookImpl) -> Callable[..., Any]:
    """The implementation, to be called with all of the hook's keywords; it may take fewer."""
    names = impl.argnames

    def call(**arguments: Any) -> Any:
        return impl.function(*[arguments[name] for name in names])

    call.__qualname__ = f"{impl.plugin_name}.{impl.function.__name__}"
    return call


def _switch(variable: str) -> frozenset[str] | None:
    value = os.environ.get(variable)
    return None if value is None else frozenset(part.strip() for part in value.split(",") if part.strip())


def load_plugins(only: Iterable[str] | None = None, disable: Iterable[str] = (), strict: bool = False) -> Plugins:
    """Load the installed plugins: entry points of group ``operad``, sorted by name and distribution.

    A plugin that fails is reported in `Plugins.records` and leaves the others untouched.

    Args:
        only: names of plugins or distributions to load; ``None`` means all. Also ``OPERAD_PLUGINS=a,b``
            (set and empty: none).
        disable: names not to load. Also ``OPERAD_DISABLE_PLUGINS=a,b``.
        strict: raise instead of reporting.

    Raises:
        ExceptionGroup: with ``strict``, of one `PluginError` for each plugin that could not be loaded.
    """
    from importlib.metadata import entry_points  # 24 ms that an application without plugins does without

    wanted, allowed = None if only is None else frozenset(only), _switch("OPERAD_PLUGINS")
    disabled = frozenset(disable) | (_switch("OPERAD_DISABLE_PLUGINS") or frozenset())
    plugins = Plugins()
    errors: list[Exception] = []
    for entry_point in sorted(
        entry_points(group=ENTRY_POINT_GROUP), key=lambda ep: (ep.name, _distribution(ep)[0])
    ):
        distribution, version = _distribution(entry_point)
        names = {entry_point.name, distribution}
        chosen = all(choice is None or names & choice for choice in (wanted, allowed))
        if not chosen or names & disabled:
            plugins._add_record(PluginRecord(entry_point.name, distribution, version, "disabled"))
            continue
        try:
            _load(plugins, entry_point, distribution, version)
        except PluginError as error:
            logger.warning("%s", error)
            errors.append(error)
    if strict and errors:
        raise ExceptionGroup("plugins could not be loaded", errors)
    return plugins


def _distribution(entry_point: EntryPoint) -> tuple[str, str | None]:
    dist = entry_point.dist
    return ("", None) if dist is None else (dist.name, dist.version)


def _load(plugins: Plugins, entry_point: EntryPoint, distribution: str, version: str | None) -> None:
    try:
        module = entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an import can raise anything, SystemExit included
        reason = f"importing {entry_point.value} raised {_describe(error)}"
        record = PluginRecord(entry_point.name, distribution, version, "failed", reason)
        plugins._add_record(record)
        raise PluginError(f"plugin {record.label}: {reason}") from error
    plugins.register(module, entry_point.name, distribution=distribution, version=version)
