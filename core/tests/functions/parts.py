"""Operations made of hints, and calls of them through a registry."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest

from operad import CallError, OperationRegistry, operation


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


def made_of(hint: Any, **options: Any) -> tuple[Any, list[Any]]:
    """Return an operation whose parameter ``a`` and result have the hint, and the list of what its function got."""
    seen: list[Any] = []

    async def f(a: Any) -> Any:
        seen.append(a)
        return a

    f.__annotations__ = {"a": hint, "return": hint}
    return operation(**options)(f), seen


async def call(made: Any, input: Any = None) -> Any:
    """Call an operation with JSON and return its data, which have to match the output schema."""
    async with OperationRegistry(on_mismatch="raise") as registry:
        registry.register(made)
        return (await registry.execute(made.id, json.loads(json.dumps(input)))).data


async def refused(made: Any, input: Any, says: str = "^VALIDATION_ERROR") -> CallError:
    """Call an operation with JSON that it does not take and return the error."""
    with pytest.raises(CallError, match=says) as caught:
        await call(made, input)
    return caught.value


async def assert_structured(hint: Any, value: Any, expected: Any, **options: Any) -> None:
    """Check that a value arrives as the hint says, and comes back as JSON that the operation takes again."""
    made, seen = made_of(hint, **options)
    back = await call(made, {"a": value})
    assert seen == [expected]
    assert type(seen[0]) is type(expected)
    assert made.spec.output_schema.is_valid(back)
    assert isinstance(value, dict | list) or back == value
    assert await call(made, {"a": back}) == back
