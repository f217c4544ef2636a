"""The options of the source ``code``, and the bounds of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from operad.plugin import record

_positive: Any = attrs.validators.gt(0)


@record(kw_only=True)
class Limits:
    """The bounds of one program. All of them are options of the source ``code``."""

    timeout: float = attrs.field(default=60.0, validator=_positive)
    """Seconds that a program may take, with its calls. The deadline of the caller may end it sooner."""
    compute: float = attrs.field(default=10.0, validator=_positive)
    """Seconds that the interpreter may compute. Its clock stops while calls run."""
    memory: int = attrs.field(default=64 * 1024 * 1024, validator=_positive)
    """Bytes of memory, and of the result of one call."""
    recursion: int = attrs.field(default=500, validator=_positive)
    """Levels of function calls."""
    max_code: int = attrs.field(default=64 * 1024, validator=_positive)
    """Bytes of the text of a program."""
    check_timeout: float = attrs.field(default=5.0, validator=_positive)
    """Seconds that the check of types may take."""
    max_operations: int = attrs.field(default=100, validator=_positive)
    """Operations that a program may name."""
    max_calls: int = attrs.field(default=1_000, validator=_positive)
    """Calls of operations, of one program."""
    max_parallel: int = attrs.field(default=50, validator=_positive)
    """Calls that run at the same time; further calls wait."""
    max_result: int = attrs.field(default=1024 * 1024, validator=_positive)
    """Bytes of the result as JSON, of the input of a call, and of the items that ``take`` returns."""
    max_output: int = attrs.field(default=64 * 1024, validator=_positive)
    """Bytes that a program may print."""


@record(kw_only=True)
class CodeConfig(Limits):
    """The options of a ``code`` source."""

    path: str | Path | None = None
    """A folder of saved programs, each of which is an operation. Without it the source offers ``search``,
    ``describe`` and ``run``."""
    include: list[str] = attrs.field(factory=lambda: ["*"])
    """Shell patterns of the ids of the operations that programs may use."""
    exclude: list[str] = attrs.field(factory=list)
    """Shell patterns of the ids that programs may not use."""
    check: bool = True
    """Whether to check the types of a program before it runs."""
    max_programs: int = attrs.field(default=16, validator=_positive)
    """Programs that run at the same time, each in a process of its own; further callers wait."""
    max_depth: int = attrs.field(default=3, validator=_positive)
    """Levels of programs that call saved programs."""
    sandbox: str | None = None
    """``module:name`` of a function that takes the `CodeConfig` and returns another `Sandbox`."""
    mask_errors: bool = True
    """Whether programs get a reference to the log instead of an exception that the operation does not declare."""
