"""Import the public names of a module when they are first used, from one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module (PEP 562); ``__getattr__`` also provides ``__all__``.

    A name may belong to another distribution, such as operad-calls. If that is not installed, the name is neither
    in ``__all__`` nor in ``dir()``, and using it raises `ModuleNotFoundError`, which names what to install.

    Args:
        package: the name of the module.
        homes: the names to provide, separated by spaces, by the module from which each is imported.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def public() -> list[str]:
        heads = {module.partition(".")[0] for module in homes}
        there = {head for head in heads if find_spec(head) is not None}
        names = (name for name, module in modules.items() if module.partition(".")[0] in there)
        return sorted(names, key=lambda name: (not name.isupper(), name))

    def look_up(name: str) -> Any:
        if name == "__all__":
            return public()
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        try:
            home = import_module(module)
        except ModuleNotFoundError as error:
            head = module.partition(".")[0]
            if error.name != head:
                raise
            distribution = head.replace("_", "-")
            message = f"{package}.{name} is part of {distribution}: pip install {distribution}"
            raise ModuleNotFoundError(message, name=head) from None
        value = home if module.endswith(f".{name}") else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up, lambda: sorted({*vars(sys.modules[package]), *public()})
