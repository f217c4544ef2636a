"""The interfaces of a sandbox, which runs programs, and of its host, which makes their calls."""

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
    """The text of a Python module that declares an object of this name, for the check of types."""
    functions: tuple[str, ...]
    """The functions of the object: ``issues_list``, or ``events.take`` for a subscription."""


@attrs.frozen
class Program:
    """A program, with the operations and values that it can use."""

    code: str
    namespaces: tuple[Namespace, ...] = ()
    inputs: Mapping[str, Any] = attrs.field(factory=dict)
    """Global variables: JSON values by name."""
    last: str = ""
    """A line to run after the program; it is not checked."""


@attrs.frozen
class Mistake:
    """A mistake that the check of a program found. ``line`` and ``column`` begin at 1."""

    line: int
    column: int
    message: str


class CallFailed(Exception):
    """The error for a call that failed. The program gets a ``RuntimeError`` with the same text."""


class ProgramFailed(Exception):
    """The error for a program that ended with an exception, or exceeded a limit.

    Args:
        message: the reason, with the place in the program.
        kind: the name of the exception's class in the program; ``""`` if it is unknown.
        line: the line of the program that raised the exception; ``None`` if it is unknown.
    """

    def __init__(self, message: str, kind: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


class Host(Protocol):
    """The receiver of the calls and the output of a running program."""

    async def call(self, function: str, args: Sequence[Any], fields: Mapping[str, Any]) -> Any:
        """Call a function, such as ``github.issues_list``, with positional ``args`` and ``fields`` as keywords.

        Return its result, a JSON value. Raises `CallFailed` if the call fails.
        """

    async def print(self, text: str) -> None:
        """Receive text that the program printed."""


class Sandbox(Protocol):
    """A sandbox, which checks and runs programs.

    A program in a sandbox can reach only its host: no files, network, environment variables or modules that reach
    them. The sandbox enforces the limits ``compute``, ``memory``, ``recursion`` and ``max_output`` of `Limits`. If
    `run` is cancelled, it ends the program and all of its calls before it returns.
    """

    async def check(self, program: Program) -> list[Mistake]:
        """Return the mistakes of a program in syntax and types, without running it; an empty list if it has none.

        Raises `ProgramFailed` if the check itself fails.
        """

    async def run(self, program: Program, host: Host) -> Any:
        """Run a program and return its result: the value of its last expression, or of a ``return``.

        Raises `ProgramFailed` if the program ends with an exception or exceeds a limit.
        """

    async def aclose(self) -> None:
        """End all programs; idempotent."""
