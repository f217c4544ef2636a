"""The options of the source ``code``, and the limits of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from operad.plugin import record

_positive: Any = attrs.validators.gt(0)


@record(kw_only=True)
class Limits:
    """The limits of one program. Each is an option of the source ``code``."""

    timeout: float = attrs.field(default=60.0, validator=_positive)
    """Maximum time of a program and its calls in seconds. The deadline of the caller may end it sooner."""
    compute: float = attrs.field(default=10.0, validator=_positive)
    """Maximum time that the interpreter computes, in seconds, without the time in which it waits for calls."""
    memory: int = attrs.field(default=64 * 1024 * 1024, validator=_positive)
    """Maximum memory of a program, and maximum size of the result of one call, in bytes."""
    recursion: int = attrs.field(default=500, validator=_positive)
    """Maximum depth of function calls."""
    max_code: int = attrs.field(default=64 * 1024, validator=_positive)
    """Maximum size of the text of a program in bytes."""
    check_timeout: float = attrs.field(default=5.0, validator=_positive)
    """Maximum time of the type check in seconds."""
    max_operations: int = attrs.field(default=100, validator=_positive)
    """Maximum number of operations that a program may name."""
    max_calls: int = attrs.field(default=1_000, validator=_positive)
    """Maximum number of operation calls by one program."""
    max_parallel: int = attrs.field(default=50, validator=_positive)
    """Maximum number of calls of a program that run at the same time; further calls wait."""
    max_result: int = attrs.field(default=1024 * 1024, validator=_positive)
    """Maximum size in bytes of the result as JSON, of the input of a call, and of the items from ``take``."""
    max_output: int = attrs.field(default=64 * 1024, validator=_positive)
    """Maximum number of bytes that a program may print."""


@record(kw_only=True)
class CodeConfig(Limits):
    """The options of a ``code`` source."""

    path: str | Path | None = None
    """A folder of saved programs, each of which is an operation. If ``None``, the source offers ``search``,
    ``describe`` and ``run``."""
    include: list[str] = attrs.field(factory=lambda: ["*"])
    """Shell patterns of the ids of the operations that programs may use."""
    exclude: list[str] = attrs.field(factory=list)
    """Shell patterns of the ids that programs may not use."""
    check: bool = True
    """Whether to check the types of a program before it runs."""
    max_programs: int = attrs.field(default=16, validator=_positive)
    """Maximum number of programs that run at the same time, each in its own process. Further programs wait; only
    those that another program calls fail instead, with ``OVERLOADED``."""
    max_depth: int = attrs.field(default=3, validator=_positive)
    """Maximum depth of programs that call saved programs."""
    sandbox: str | None = None
    """``module:name`` of a function that returns a `Sandbox` for the `CodeConfig`. If ``None``, Monty is used."""
    mask_errors: bool = True
    """Whether programs get a reference to the log instead of an exception that the operation does not declare."""
