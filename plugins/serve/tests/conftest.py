"""What the tests of serving share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from operad import OperationRegistry
from operad_serve import to_openapi
from plugins.serve.tests import front_door


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Undo what the command sets up for logging in its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
async def registry() -> AsyncIterator[OperationRegistry]:
    """A registry of every shape that the HTTP API serves."""
    async with OperationRegistry(front_door.plugins()) as made:
        for each in front_door.everything():
            made.register(each)
        made.register(front_door.SLASHED, front_door.who)
        yield made


@pytest.fixture
async def call(registry: OperationRegistry) -> AsyncIterator[front_door.Client]:
    """A client of that registry, served."""
    async with front_door.client_of(to_openapi(registry)) as client:
        yield client
