"""The fixtures of operad-testing, which pytest finds by an entry point."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from operad import Operation, OperationRegistry
from operad_testing._cassette import Cassette, cassette
from operad_testing._fakes import StaticSource, plugins_of

FAKE = "fake"


@pytest.fixture
def operad_source() -> StaticSource:
    """Return a source named ``fake`` without operations; ``operad_source.change([operation, …])`` sets them."""
    return StaticSource(FAKE, ())


@pytest.fixture
def operad_registry(operad_source: StaticSource) -> Iterator[OperationRegistry]:
    """Yield a registry with `operad_source` as its only plugin, and close the registry after the test.

    ``await operad_registry.load("fake")`` loads the source.
    """
    registry = OperationRegistry(plugins_of(operad_source))
    yield registry
    asyncio.run(registry.aclose())


@pytest.fixture
def operad_operation() -> Callable[..., Operation[..., Any]]:
    """Return a function that makes operations.

    ``operad_operation("pets.get", {"id": 1})`` makes an operation that returns ``{"id": 1}``. If the value is an
    exception, the operation raises it. By default, the value is None. Keyword arguments are those of
    `OperationSpec`; ``type`` is ``"query"`` unless given.
    """
    from operad import OperationSpec

    def make(id: str, answer: Any = None, **spec: Any) -> Operation[..., Any]:
        namespace, _, name = id.partition(".")

        async def handle(input: Any, context: Any) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return Operation(OperationSpec(namespace=namespace, name=name, **{"type": "query", **spec}), handle)

    return make


@pytest.fixture
def operad_cassette(request: pytest.FixtureRequest) -> Iterator[Callable[..., Cassette]]:
    """Yield a function that opens the test's cassette for a registry: ``operad_cassette(registry)``.

    Keyword arguments are those of `cassette`. The cassette is ``cassettes/<file>.<test>.json`` beside the file of
    the test, and is closed after the test. The mode is the argument ``mode``, else the environment variable
    ``OPERAD_CASSETTES``, such as ``record``, else ``once``.
    """
    name = re.sub(r"[^\w.-]+", "_", request.node.name)
    path = Path(request.path).parent / "cassettes" / f"{Path(request.path).stem}.{name}.json"
    with ExitStack() as stack:

        def play(registry: OperationRegistry, **options: Any) -> Cassette:
            mode: Any = options.pop("mode", None) or os.environ.get("OPERAD_CASSETTES") or "once"
            return stack.enter_context(cassette(path, registry, mode=mode, **options))

        yield play
