"""A cache of the installed plugins, with which a command for one operation imports only the plugins that it needs.

Finding entry points and importing all plugins would take longer than the call of a function. The cache is valid
while ``sys.path``, the folders on it and the modules of the plugins are unchanged. Installing, upgrading or
removing a distribution changes the time of a folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from operad import OperationRegistry, PluginError, PluginRecord, load_plugins
from operad_auth.http import cache_files

_KIND = "plugins"
_VERSION = 3
"""The version of the cache's format."""
_UNUSED_HOOKS = frozenset({"operad_commands", "operad_search", "operad_call_map", "operad_call_server"})
"""Hooks that no command for one operation calls."""


class Distribution(NamedTuple):
    """The name and the version of a plugin's distribution; the version is ``None`` if unknown."""

    name: str
    version: str | None


class KnownPlugin(NamedTuple):
    """An entry point in the cache, with the contributions of its plugin as in `PluginRecord.contributes`."""

    name: str
    value: str
    dist: Distribution
    contributes: dict[str, list[str]]

    def load(self) -> object:
        """Import the plugin, and return the object that its entry point names."""
        module, _, attribute = self.value.partition(":")
        found: object = import_module(module.strip())
        for part in filter(None, attribute.strip().split(".")):
            found = getattr(found, part)
        return found

    @property
    def is_passive(self) -> bool:
        """Whether the plugin does nothing in a call unless one of its sources is used."""
        return bool(self.contributes) and _UNUSED_HOOKS.issuperset(self.contributes.get("hooks", ()))


class KnownPlugins:
    """The plugins in the cache."""

    def __init__(self, plugins: Collection[KnownPlugin]) -> None:
        self._passive = [plugin for plugin in plugins if plugin.is_passive]
        self._others = [plugin for plugin in plugins if not plugin.is_passive]

    @classmethod
    def recall(cls) -> KnownPlugins | None:
        """Return the cached plugins.

        Return None if nothing is cached, the plugins may have changed, or an environment variable
        (``OPERAD_PLUGINS`` or ``OPERAD_DISABLE_PLUGINS``) chooses plugins.
        """
        if _chosen_by_environment():
            return None
        found = cache_files.recall(_KIND, _slot(), _key())
        try:
            if not all(_stamp(each["file"]) == each["stamp"] for each in found):
                return None
            return cls(
                [
                    KnownPlugin(
                        each["name"],
                        each["value"],
                        Distribution(each["distribution"], each["version"]),
                        dict(each["contributes"]),
                    )
                    for each in found
                ]
            )
        except (KeyError, TypeError, ValueError):  # nothing, or another program's content
            return None

    def registry(self, path: str | os.PathLike[str], profile: str | None) -> OperationRegistry | None:
        """Return the registry of the configuration file ``path``, without passive plugins.

        Return None if the configuration may need all plugins. Raises the same errors as
        `OperationRegistry.from_config`.
        """
        plugins = load_plugins(entry_points=self._others)
        registry = OperationRegistry.from_config(path, plugins, profile=profile, sources=())
        configuration = registry.configuration
        assert configuration is not None
        types = {str(table["type"]) for table in configuration.sources.values()}
        sources = [name for plugin in self._passive for name in plugin.contributes.get("sources", ())]
        # A peer may respond with envelopes of any plugin, and a program may call operations of any source.
        if (
            "plugins" in configuration.tables
            or types & {"remote", "code"}
            or any(sources.count(t) != 1 for t in types)
        ):
            return None
        return registry

    def register(self, registry: OperationRegistry, sources: Collection[str]) -> None:
        """Register the passive plugins that the given sources need. Failures are in the records of the plugins."""
        assert registry.configuration is not None
        types = {registry.configuration.sources[name]["type"] for name in sources}
        for plugin in list(self._passive):
            if types.isdisjoint(plugin.contributes.get("sources", ())):
                continue
            self._passive.remove(plugin)
            name, version = plugin.dist
            try:
                registry.plugins.register(plugin.load(), plugin.name, distribution=name, version=version)
            except PluginError:  # recorded by register()
                pass
            except Exception as error:  # noqa: BLE001  # an import may raise anything
                text = f"importing {plugin.value} raised {type(error).__name__}: {error}"
                registry.plugins.add_record(PluginRecord(plugin.name, name, version, "failed", text))


def remember(registry: OperationRegistry) -> None:
    """Store the plugins of a registry that has all installed plugins in the cache.

    Store nothing if the configuration or an environment variable chooses plugins, or two plugins conflict.
    """
    configuration, records = registry.configuration, registry.plugins.records
    if _chosen_by_environment() or configuration is None or "plugins" in configuration.tables:
        return
    if any(record.status == "conflict" for record in records) or KnownPlugins.recall() is not None:
        return
    cache_files.remember(_KIND, _slot(), _key(), list(_entries(records)))


def _entries(records: Collection[PluginRecord]) -> Iterator[dict[str, Any]]:
    from importlib.metadata import entry_points

    values = {(point.name, point.dist.name): point.value for point in entry_points(group="operad") if point.dist}
    for record in records:
        value = values.get((record.name, record.distribution or ""))
        if value is None:
            continue
        file = getattr(sys.modules.get(value.partition(":")[0].strip()), "__file__", None)
        yield {
            "name": record.name,
            "value": value,
            "distribution": record.distribution,
            "version": record.version,
            "file": file,
            "stamp": _stamp(file),
            # A plugin that failed, or has no file to watch, is loaded each time.
            "contributes": record.to_wire()["contributes"] if record.status == "loaded" and file else {},
        }


def _chosen_by_environment() -> bool:
    return "OPERAD_PLUGINS" in os.environ or "OPERAD_DISABLE_PLUGINS" in os.environ


def _slot() -> list[Any]:
    return [_VERSION, sys.prefix, list(sys.path)]


def _key() -> list[Any]:
    return [sys.version, [[path, _stamp(path or ".")] for path in sys.path]]


def _stamp(path: str | None) -> list[int] | None:
    try:
        found = os.stat(path or "")
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]
