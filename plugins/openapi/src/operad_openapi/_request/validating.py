"""The schema of an operation's input, and how strictly it is enforced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs

from operad_schema import Limits, Schema, SchemaError

Validate = Literal["error", "warn", "off"]


class InputSchema(Schema):
    """The schema of an input. It rejects inputs that do not match, only reports them, or accepts all.

    Args:
        build: makes the schema when it is first used.
        validate: ``error`` rejects an input that does not match, ``warn`` calls ``report`` and accepts it, ``off``
            accepts it.
        report: the function that is called with the errors of an input.
        hint: returns how to fix an input, to be added to the first error, or ``""``.
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
        """Return a schema that accepts and reports the same, within other ``limits``."""
        build, validate, report, hint = self._arguments
        return InputSchema(lambda: build().limited(limits), validate, report, hint)

    @property
    def validator(self) -> Callable[[Any], bool]:
        """The compiled check. It accepts every input unless ``validate`` is ``error``."""
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
        """Return the errors of an input; the first error includes the hint, unless that is empty."""
        found = super().errors(value)
        if found and (hint := self._arguments[3](value)):
            found[0] = attrs.evolve(found[0], message=f"{found[0].message}; {hint}")
        return found
