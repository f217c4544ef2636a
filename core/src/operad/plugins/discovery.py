"""Find plugins by the entry points of installed distributions, and load each in isolation."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from operad.errors import PluginError
from operad.plugins.manager import Plugins
from operad.plugins.record import PluginRecord
from operad.words import in_words, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger("operad")

GROUP = "operad"


class Found(NamedTuple):
    """An entry point, with the name and version of the distribution that contains it."""

    entry_point: Any
    """An `EntryPoint`, or the object that `load_plugins` accepts instead of one."""
    distribution: str
    version: str | None

    @property
    def names(self) -> frozenset[str]:
        """The names (normalized as in PEP 503) that select the plugin: of the entry point and the distribution."""
        return frozenset({_normal(self.entry_point.name), _normal(self.distribution)})


def load_plugins(
    only: Iterable[str] | None = None,
    disable: Iterable[str] = (),
    strict: bool = False,
    entry_points: Iterable[Any] | None = None,
) -> Plugins:
    """Load the installed plugins: entry points of group ``operad``, sorted by name and distribution.

    A plugin that fails is logged and reported in `Plugins.records`, and does not affect other plugins.

    Args:
        only: names of plugins or distributions to load; ``None`` means all. The environment variable
            ``OPERAD_PLUGINS=a,b`` limits them further; if it is set but empty, no plugin is loaded.
        disable: names of plugins or distributions not to load, in addition to ``OPERAD_DISABLE_PLUGINS=a,b``.
        strict: whether a plugin that cannot be loaded is an error.
        entry_points: entry points to load instead of the installed ones: those of `importlib.metadata`, or objects
            with the same ``name``, ``value``, ``dist`` and ``load()``.

    Raises:
        PluginError: a name in ``only``, ``disable`` or their variables is misspelt: no plugin has it, but an
            installed plugin has a similar name.
        ExceptionGroup: with ``strict``, one `PluginError` for each plugin that could not be loaded, or that was
            requested and is not installed.
    """
    plugins = Plugins()
    errors = _load_all(plugins, only, disable, entry_points)
    for error in errors:
        logger.warning("%s", error)
    if strict and errors:
        raise ExceptionGroup("plugins could not be loaded", errors)
    return plugins


def _load_all(
    plugins: Plugins, only: Iterable[str] | None, disable: Iterable[str], points: Iterable[Any] | None
) -> list[PluginError]:
    """Load the chosen plugins. Return the errors of those that could not be loaded."""
    choices = [_normalized(choice) for choice in (only, _switch("OPERAD_PLUGINS")) if choice is not None]
    disabled = _normalized(disable) | _normalized(_switch("OPERAD_DISABLE_PLUGINS") or ())
    found = sorted(
        (Found(point, *_distribution(point)) for point in (_installed() if points is None else points)),
        key=lambda item: (item.entry_point.name, item.distribution),
    )
    known = frozenset[str]().union(*(item.names for item in found))
    _check_names(disabled.union(*choices), known)
    errors = []
    for item in found:
        if item.names & disabled or not all(item.names & choice for choice in choices):
            plugins.add_record(_record(item, status="disabled"))
            continue
        try:
            _load(plugins, item)
        except PluginError as error:
            errors.append(error)
    missing = sorted(frozenset[str]().union(*choices) - known)
    return [*errors, *(_not_installed(name, found) for name in missing)]


def _check_names(names: Iterable[str], known: frozenset[str]) -> None:
    """Raise `PluginError` for misspelt names: those that are unknown, but similar to a known name.

    Any other unknown name may be that of a plugin that is not installed.
    """
    for name in sorted(names):
        if name not in known and (meant := nearest(name, known, cutoff=0.75)):
            raise PluginError(f'no installed plugin is named "{name}"{_chosen_by(name)}; did you mean "{meant}"?')


def _load(plugins: Plugins, item: Found) -> None:
    try:
        plugin = item.entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an import can raise anything, SystemExit included
        reason = f"importing {item.entry_point.value} raised {in_words(error)}; {_hint(item, error)}"
        record = _record(item, status="failed", error=reason)
        plugins.add_record(record)
        raise PluginError(f"plugin {record.label}: {reason}") from error
    plugins.register(plugin, item.entry_point.name, distribution=item.distribution, version=item.version)


def _record(item: Found, **fields: object) -> PluginRecord:
    return PluginRecord(item.entry_point.name, item.distribution, item.version, **fields)  # type: ignore[arg-type]  # two literals


def _hint(item: Found, error: BaseException) -> str:
    """Return how to fix an import that failed."""
    if isinstance(error, ImportError):
        missing = (error.name or "").partition(".")[0]
        if missing == "operad":
            return f"it is made for another version of operad; upgrade {item.distribution} and operad together"
        if missing == item.entry_point.value.partition(".")[0].partition(":")[0]:
            return (
                f"{item.distribution} is incomplete: pip install --force-reinstall --no-deps {item.distribution}"
            )
        if isinstance(error, ModuleNotFoundError) and missing:
            return (
                f"pip install --force-reinstall {item.distribution} installs its dependencies; if that does not "
                f"help, its author must add the distribution of {missing} to them"
            )
    name = item.entry_point.name
    return f"upgrade {item.distribution}, report it to its author, or disable it: OPERAD_DISABLE_PLUGINS={name}"


def _installed() -> Iterable[EntryPoint]:
    """Return the entry points of all installed distributions."""
    from importlib.metadata import entry_points  # slow to import

    try:
        return entry_points(group=GROUP)
    except Exception:  # noqa: BLE001  # one distribution with a malformed entry_points.txt, of whatever project
        return _one_by_one()


def _one_by_one() -> Iterator[EntryPoint]:
    """Yield the entry points of the readable distributions; the first of one name is used, as for imports."""
    from importlib.metadata import distributions

    seen = set()
    for distribution in distributions():
        try:
            points = [point for point in distribution.entry_points if point.group == GROUP]
            name = _normal(distribution.name)
        except Exception:  # noqa: BLE001, S112  # not readable: nothing of it can be loaded
            continue
        if name not in seen:
            seen.add(name)
            yield from points


def _distribution(point: Any) -> tuple[str, str | None]:
    """Return name and version; a damaged installation may have neither."""
    try:
        return point.dist.name or "unknown distribution", point.dist.version
    except Exception:  # noqa: BLE001  # importlib.metadata raises various errors for missing files
        return "unknown distribution", None


def _chosen_by(name: str) -> str:
    """Return the environment variable that has a plugin's name, for a message; else an empty string."""
    switches = ("OPERAD_PLUGINS", "OPERAD_DISABLE_PLUGINS")
    return "".join(f" (in {switch})" for switch in switches if name in _normalized(_switch(switch) or ()))


def _not_installed(name: str, found: Iterable[Found]) -> PluginError:
    installed = ", ".join(sorted({item.entry_point.name for item in found})) or "none"
    hint = f"install it, or correct the name (installed: {installed})"
    return PluginError(f'plugin "{name}"{_chosen_by(name)} was requested but is not installed; {hint}')


def _switch(variable: str) -> list[str] | None:
    value = os.environ.get(variable)
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


def _normalized(names: Iterable[str]) -> frozenset[str]:
    # A single name given as a string would otherwise be split into its letters.
    return frozenset(_normal(name) for name in ([names] if isinstance(names, str) else names))


def _normal(name: str) -> str:
    """Return the name of a distribution in normalized form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
