"""Examples for the suites: sample calls and their expected results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn
from unittest import SkipTest

import attrs


class _Anything:
    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING: Final = _Anything()
"""The ``data`` of an example whose result the suite does not check."""


@attrs.frozen
class Example:
    """A call that a suite makes, and its expected outcome.

    Args:
        name: the name of the operation, without the namespace.
        input: the input of the call.
        data: the expected data; for a subscription, a list of the expected first items.
        error: the code of the expected `CallError`; None if the call must succeed.
    """

    name: str
    input: Mapping[str, Any] = attrs.field(factory=dict)
    data: Any = ANYTHING
    error: str | None = None

    def id(self, namespace: str) -> str:
        """Return the id of the operation in a namespace."""
        return f"{namespace}.{self.name}"


def given(example: Example | None, declared: bool, suite: object, name: str) -> Example:
    """Return the example of a declared capability, which must not be None. Skip the test if it is not declared."""
    if not declared:
        skip(f"{type(suite).__name__} does not declare {name}")
    assert example is not None, (
        f"{type(suite).__name__} declares this capability: set {name} = Example(name, input, …)"
    )
    return example


def skip(reason: str) -> NoReturn:
    """Skip the test by `unittest.SkipTest`, which every test runner supports."""
    raise SkipTest(reason)


def equal(got: Any, expected: Any, what: str) -> None:
    """Raise `AssertionError` unless two values are equal. ``what`` names the value.

    The message shows both values, because test runners do not rewrite assertions of a library.
    """
    assert got == expected, f"{what}: expected {expected!r}, got {got!r}"
