"""Apply overlays, which change a document before it is used (OpenAPI Overlay Specification 1.0.0).

The targets of their actions are JSONPath (RFC 9535).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from operad import SourceError
from operad_openapi._document.document import Json
from operad_openapi._document.listing import Diagnostic


def apply_overlay(root: Json, overlay: Any, where: str) -> Iterator[Diagnostic]:
    """Apply the actions of an overlay to ``root``, in place, while the caller iterates over the warnings.

    Args:
        root: the document.
        overlay: the parsed overlay.
        where: the overlay's name for messages.

    Yields:
        A warning for each action whose target matches nothing.

    Raises:
        SourceError: the overlay or a target in it is malformed, or the package for JSONPath is not installed.
    """
    version = overlay.get("overlay") if isinstance(overlay, dict) else None
    actions = overlay.get("actions") if isinstance(overlay, dict) else None
    if not str(version).startswith("1.") or not isinstance(actions, list):
        got = f"version {version!r:.20}, actions {type(actions).__name__}"
        raise SourceError(f"{where}: expected an OpenAPI overlay, `overlay: 1.x` and a list of actions, got {got}")
    for index, action in enumerate(actions):
        target = action.get("target") if isinstance(action, dict) else None
        if not isinstance(target, str):
            got = f"target {target!r:.60}" if isinstance(action, dict) else type(action).__name__
            raise SourceError(f'{where}: actions[{index}]: expected an object with a JSONPath "target", got {got}')
        found = _matches(root, target, f"{where}: actions[{index}]")
        if not found:
            reason = f"{where}: actions[{index}]: no value matches {target:.200}"
            yield Diagnostic("#", reason, "warning")
        for keys in found:
            if action.get("remove") is True:
                _remove(root, keys)
            elif "update" in action:
                _update(root, keys, action["update"])


def _matches(root: Json, target: str, where: str) -> list[tuple[str | int, ...]]:
    """Return the places that ``target`` matches, the last of a list first, so that removing one moves no other."""
    try:
        from jsonpath import JSONPathEnvironment, JSONPathError
    except ImportError as error:
        raise SourceError(
            f"{where}: overlays need a package that is not installed: pip install 'operad-openapi[overlay]'"
        ) from error
    try:
        matches = JSONPathEnvironment(strict=True).finditer(target, root)
        found = {tuple(match.parts) for match in matches}
    except JSONPathError as error:
        raise SourceError(f'{where}: expected a JSONPath, got "{target:.200}": {error}') from error
    return sorted(found, key=lambda keys: [(isinstance(key, int), key) for key in keys], reverse=True)


def _at(root: Json, keys: tuple[str | int, ...]) -> Any:
    node: Any = root
    for key in keys:
        node = node[key]
    return node


def _remove(root: Json, keys: tuple[str | int, ...]) -> None:
    try:
        del _at(root, keys[:-1])[keys[-1]]
    except (LookupError, TypeError):
        return  # gone already, with what held it


def _update(root: Json, keys: tuple[str | int, ...], value: Any) -> None:
    try:
        node = _at(root, keys)
    except (LookupError, TypeError):
        return
    if isinstance(node, list):
        node.append(copy.deepcopy(value))
    elif isinstance(node, dict) and isinstance(value, dict):
        _merge(node, value)
    elif keys:
        _at(root, keys[:-1])[keys[-1]] = copy.deepcopy(value)


def _merge(node: Json, value: Json) -> None:
    """Merge ``value`` into ``node``: objects are merged, arrays are joined, other values are replaced."""
    for key, new in value.items():
        old = node.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            _merge(old, new)
        elif isinstance(old, list) and isinstance(new, list):
            old.extend(copy.deepcopy(new))
        else:
            node[key] = copy.deepcopy(new)
