"""Helpers of the tests stand beside them; a test that is a coroutine function runs in an event loop of its own."""

import inspect
import sys
from pathlib import Path

import pytest

from operad_testing import run

sys.path.insert(0, str(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function, which must leave nothing pending in its event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in parameters}))
    return True
