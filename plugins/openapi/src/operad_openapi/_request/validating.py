"""The schema of an operation's input, and how strictly the source takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs

from operad_schema import Limits, Schema, SchemaError

Validate = Literal["error", "warn", "off"]


class InputSchema(Schema):
    """Describes inputs. It rejects those that do not match it, or only reports them, or takes them all.

    Args:
        build: makes the schema when it is first used.
        validate: ``error`` rejects, ``warn`` calls ``report``, ``off`` takes every input.
        report: called with the errors of an input.
        hint: how to fix an input, added to the first error; ``""`` for none.
    """

    __slots__ = ("_arguments",)

    def __init__(
        self,
        build: Callable[[], Schema],
        validate: Validate,
        report: Callable[[list[SchemaError]], None],
        hint: Callable[[Any], str],
    ) -> None:
        super().__init__(None, build)
        self._arguments = build, validate, report, hint

    def limited(self, limits: Limits) -> Schema:
        """Return the same schema, read within other bounds."""
        build, validate, report, hint = self._arguments
        return InputSchema(lambda: build().limited(limits), validate, report, hint)

    @property
    def validator(self) -> Callable[[Any], bool]:
        """The compiled check; it lets every input pass unless invalid ones are rejected."""
        _, validate, report, _ = self._arguments
        check = super().validator
        if validate == "error":
            return check
        if validate == "off":
            return lambda _: True

        def warn(value: Any) -> bool:
            if not check(value):
                report(self.errors(value))
            return True

        return warn

    def errors(self, value: Any) -> list[SchemaError]:
        """Return what is wrong with an input, with a hint if there is one."""
        found = super().errors(value)
        if found and (hint := self._arguments[3](value)):
            found[0] = attrs.evolve(found[0], message=f"{found[0].message}; {hint}")
        return found
