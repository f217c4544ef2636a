"""Code mode: programs over the operations of a registry, run in a sandbox with the rights of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_code.config import CodeConfig, Limits
    from operad_code.monty import MontySandbox
    from operad_code.sandbox import CallFailed, Host, Mistake, Namespace, Program, ProgramFailed, Sandbox

_HOMES = {
    "config": ("CodeConfig", "Limits"),
    "monty": ("MontySandbox",),
    "sandbox": ("CallFailed", "Host", "Mistake", "Namespace", "Program", "ProgramFailed", "Sandbox"),
}
__all__ = [
    "CallFailed",
    "CodeConfig",
    "Host",
    "Limits",
    "Mistake",
    "MontySandbox",
    "Namespace",
    "Program",
    "ProgramFailed",
    "Sandbox",
]


def __getattr__(name: str) -> Any:
    # Imported when first used: finding plugins imports this package for its entry point alone.
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
