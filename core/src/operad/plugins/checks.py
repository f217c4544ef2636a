"""Check the contributions of a plugin before any of them is added."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pluggy

from operad import hookspecs
from operad.words import in_words, nearest

if TYPE_CHECKING:
    from operad.plugins.record import PluginStatus

CONTRIBUTING: tuple[tuple[str, str, str], ...] = (
    ("operad_envelope_kinds", "envelope_kinds", "operad.envelopes.EnvelopeKind"),
    ("operad_sources", "sources", "operad.sources.Source"),
    ("operad_transports", "transports", "operad.transports.TransportFactory"),
    ("operad_servers", "servers", "operad.sources.Server"),
)
"""The hooks that run when a plugin is loaded: hook, kind of contribution, and the class of each contribution.

Each class is given by its name, so that a short command imports no transports.
"""

HOOKS = frozenset(name for name in vars(hookspecs) if name.startswith("operad_"))
"""The names of all hooks."""
OTHER_HOOKS = HOOKS.difference(hook for hook, _, _ in CONTRIBUTING)
"""The names of the hooks that are not called when a plugin is loaded."""

# The registry awaits what these return; every other hook is called synchronously.
_MAY_BE_ASYNC = frozenset({"operad_resolve_operation"})


class Refused(Exception):
    """Raised for a plugin that cannot be registered, with the reason and the status for its record."""

    def __init__(self, message: str, status: PluginStatus = "failed") -> None:
        super().__init__(message)
        self.status = status


def check_version(plugin: object) -> None:
    """Raise `Refused` if the plugin declares an ``operad_api_version`` that differs from `API_VERSION`."""
    version = getattr(plugin, "operad_api_version", hookspecs.API_VERSION)
    if version != hookspecs.API_VERSION:
        raise Refused(
            f"operad_api_version: expected {hookspecs.API_VERSION}, got {version!r:.60}; "
            f"install a release of the plugin for this version of operad",
            "incompatible",
        )


def check_marks(plugin: object) -> None:
    """Raise `Refused` for an attribute that is named like a hook, but is not a function marked with `hookimpl`."""
    for name in dir(plugin):
        if not name.startswith("operad_"):
            continue
        value = getattr(plugin, name, None)
        marked = hasattr(value, f"{hookspecs.PROJECT}_impl")
        if not inspect.isroutine(value):
            if name in HOOKS or marked:
                raise Refused(f"{name} must be a function, got {type(value).__name__}")
        elif marked:
            continue
        elif name in HOOKS:
            raise Refused(f"{name} is not marked: put @hookimpl (from operad.plugin) above it")
        elif meant := nearest(name, HOOKS, cutoff=0.75):
            raise Refused(
                f'{name} is not a hook; did you mean {meant}, marked with @hookimpl? Otherwise name it "_{name}"'
            )


def check_hooks(manager: pluggy.PluginManager, plugin: object) -> None:
    """Raise `Refused` for a marked function that is a wrapper, an unexpected ``async def``, or not a hook."""
    for caller in manager.get_hookcallers(plugin) or ():
        for impl in caller.get_hookimpls():
            if impl.plugin is not plugin:
                continue
            if not caller.has_spec():
                if impl.optionalhook:
                    continue
                meant = nearest(caller.name, HOOKS, cutoff=0.75)
                hint = f"did you mean {meant}?" if meant else f"the hooks are {', '.join(sorted(HOOKS))}"
                raise Refused(f"{caller.name} is not a hook; {hint}")
            if impl.wrapper or impl.hookwrapper:
                raise Refused(f"{caller.name} must not be a wrapper; operad calls each implementation on its own")
            if inspect.iscoroutinefunction(impl.function) and caller.name not in _MAY_BE_ASYNC:
                raise Refused(f"{caller.name} must be a plain def, got an async def")


def contributions(manager: pluggy.PluginManager, plugin: object) -> dict[str, dict[str, Any]]:
    """Call the contributing hooks of a plugin, and return its contributions by kind and name.

    Raises:
        Refused: a hook raises, returns a value of the wrong type or an invalid name, or returns a name twice.
    """
    found: dict[str, dict[str, Any]] = {kind: {} for _, kind, _ in CONTRIBUTING}
    for hook, kind, expected in CONTRIBUTING:
        for impl in getattr(manager.hook, hook).get_hookimpls():
            if impl.plugin is plugin:
                for item in _items(hook, impl.function, expected):
                    for name in _names(hook, kind, item):
                        if name in found[kind]:
                            raise Refused(f'{hook} returns {word(kind)} "{name}" twice; expected different names')
                        found[kind][name] = item
    return found


def other_hooks(manager: pluggy.PluginManager, plugin: object) -> tuple[str, ...]:
    """Return the sorted names of the plugin's hooks that are not called when the plugin is loaded."""
    return tuple(sorted(OTHER_HOOKS.intersection(each.name for each in manager.get_hookcallers(plugin) or ())))


def word(kind: str) -> str:
    """Return the singular of a kind: ``envelope_kinds`` -> ``envelope kind``."""
    return kind.removesuffix("s").replace("_", " ")


def _items(hook: str, function: Callable[..., Any], home: str) -> list[Any]:
    module, _, name = home.rpartition(".")
    expected = getattr(import_module(module), name)
    try:
        returned = function()
        items = [] if returned is None else list(returned) if hasattr(returned, "__iter__") else None
    except Exception as error:
        raise Refused(f"{hook} raised {in_words(error)}") from error
    if items is None:
        raise Refused(f"{hook} must return a list of {expected.__name__}, got {type(returned).__name__}")
    for item in items:
        if not isinstance(item, expected):
            got = f"got a list with {type(item).__name__}"
            raise Refused(f"{hook} must return a list of {expected.__name__}, {got}")
    return items


def _names(hook: str, kind: str, item: Any) -> tuple[str, ...]:
    if kind == "envelope_kinds":
        names: tuple[Any, ...] = (item.source,)
    elif kind == "transports":
        names = item.schemes
        for name in names:
            if name != str(name).lower():
                raise Refused(f"{hook}: expected a URL scheme in lower case, got {name!r:.60}")
    else:
        names = (item.name,)
    for name in names:
        if not isinstance(name, str) or not name or name.split() != [name]:
            raise Refused(f"{hook}: a name must be a string without white space, got {name!r:.60}")
    return names
