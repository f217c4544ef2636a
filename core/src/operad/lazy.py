"""Names of a module that are imported when they are first used, from one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a module (PEP 562).

    Args:
        package: the name of the module.
        homes: the names that each module gives, separated by spaces; its own name stands for the module itself.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}
    public = sorted(modules, key=lambda name: (not name.isupper(), name))

    def look_up(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(modules[name])
        value = home if modules[name].endswith(f".{name}") else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    return public, look_up, lambda: sorted({*vars(sys.modules[package]), *public})
