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
"""The value of `Example.data` if the suite does not check the result."""


@attrs.frozen
class Example:
    """A call that a suite makes, and its expected outcome.

    Args:
        name: the name of the operation, without the namespace.
        input: the input of the call.
        data: the expected data; for a subscription, a list of the expected first items. By default, any data.
        error: the code of the `CallError` that `SourceConformance.failing` must raise; if None,
            ``EXECUTION_ERROR``. Other examples ignore it.
    """

    name: str
    input: Mapping[str, Any] = attrs.field(factory=dict)
    data: Any = ANYTHING
    error: str | None = None

    def id(self, namespace: str) -> str:
        """Return the id of the operation in a namespace."""
        return f"{namespace}.{self.name}"


def given(example: Example | None, declared: bool, suite: object, name: str) -> Example:
    """Return the example of a capability. Skip the test if the suite does not declare the capability.

    Raises `AssertionError` if the suite declares the capability and ``example`` is ``None``. ``name`` names the
    attribute of the suite that has the example.
    """
    if not declared:
        skip(f"{type(suite).__name__} does not declare the capability that {name} is for")
    assert example is not None, (
        f"{type(suite).__name__} declares the capability that {name} is for: set {name} = Example(name, input, …)"
    )
    return example


def skip(reason: str) -> NoReturn:
    """Skip the test: raise `unittest.SkipTest`, which every test runner supports."""
    raise SkipTest(reason)


def equal(got: Any, expected: Any, what: str) -> None:
    """Raise `AssertionError` unless two values are equal. ``what`` names the value.

    The message shows both values, because test runners do not rewrite assertions of a library.
    """
    assert got == expected, f"{what}: expected {expected!r}, got {got!r}"
