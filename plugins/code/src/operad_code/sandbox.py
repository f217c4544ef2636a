"""The interface of sandboxes: what runs a program, and what the program can reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs


@attrs.frozen
class Namespace:
    """The operations of one namespace that a program may call."""

    name: str
    """The name in the program."""
    stub: str
    """Python types: a module that declares an object of this name."""
    functions: tuple[str, ...]
    """What can be called: ``issues_list``, or ``events.take`` for a subscription."""


@attrs.frozen
class Program:
    """A program and its surroundings."""

    code: str
    namespaces: tuple[Namespace, ...] = ()
    inputs: Mapping[str, Any] = attrs.field(factory=dict)
    """Global variables: JSON values by name."""
    last: str = ""
    """One more line at the end, which is run and not checked."""


@attrs.frozen
class Mistake:
    """A reason why a program cannot run."""

    line: int
    column: int
    message: str


class CallFailed(Exception):
    """A call failed. In the program it is a ``RuntimeError`` with this text."""


class ProgramFailed(Exception):
    """A program ended with an exception, or reached a bound.

    Args:
        message: what happened, with the place in the program.
        kind: the name of the exception's class in the program.
        line: where it was raised, or ``None``.
    """

    def __init__(self, message: str, kind: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


class Host(Protocol):
    """The calls and the output of a running program."""

    async def call(self, function: str, args: Sequence[Any], fields: Mapping[str, Any]) -> Any:
        """Call ``namespace.function`` and return JSON. Raises `CallFailed`."""

    async def print(self, text: str) -> None:
        """Receive the output of the program."""


class Sandbox(Protocol):
    """Checks and runs programs.

    A sandbox gives a program nothing but its host: no files, network, environment variables or modules that reach
    them. It enforces the bounds ``compute``, ``memory``, ``recursion`` and ``max_output`` of `Limits`. If `run` is
    cancelled, it ends the program and all of its calls before it returns.
    """

    async def check(self, program: Program) -> list[Mistake]:
        """Return the mistakes in syntax and types; run nothing."""

    async def run(self, program: Program, host: Host) -> Any:
        """Run a program and return the value of its last expression. Raises `ProgramFailed`."""

    async def aclose(self) -> None:
        """End all programs; idempotent."""
