"""Names of other distributions: there where the distribution is installed, and an error that names it elsewhere."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from operad.lazy import lazily

HIDE = "import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"  # as if they were not installed
FIRST = """
import asyncio
from operad import OperationRegistry, operation

@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with OperationRegistry() as registry:
        registry.register(add)
        print((await registry.execute("math.add", {"a": 1, "b": 2})).data)

asyncio.run(main())
"""


def run(code: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python in which some packages cannot be found."""
    code = HIDE.format(hidden=set(hidden)) + code if hidden else code
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_name_whose_distribution_is_missing_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = ModuleType("lazy_example")
    monkeypatch.setitem(sys.modules, "lazy_example", made)
    homes = {"collections": "OrderedDict", "typing": "TYPE_CHECKING", "operad_nowhere.inner": "Thing"}
    made.__getattr__, made.__dir__ = lazily("lazy_example", homes)  # type: ignore[method-assign]  # a module's own (PEP 562)
    missing = r"^lazy_example\.Thing is part of operad-nowhere: pip install operad-nowhere$"
    with pytest.raises(ModuleNotFoundError, match=missing):
        _ = made.Thing
    assert made.__all__ == ["TYPE_CHECKING", "OrderedDict"], "constants first"
    assert "Thing" not in dir(made)
    assert made.OrderedDict.__name__ == "OrderedDict"
    assert "OrderedDict" in vars(made)


@pytest.mark.parametrize(
    ("code", "distribution"),
    [
        ("from operad import PendingRequestMap", "operad-calls"),
        ("from operad.auth import StaticTokens", "operad-auth"),
        ("from operad.testing import TransportConformance", "operad-testing"),
        ("from operad import FirstResults", "operad-rules"),
    ],
)
def test_an_import_of_a_missing_distribution_names_it(code: str, distribution: str) -> None:
    done = run(code, distribution.replace("-", "_"))
    assert f"pip install {distribution}" in done.stderr
    assert done.returncode == 1


def test_the_public_names_are_those_that_are_installed() -> None:
    code = "import operad; print('CallHandler' in operad.__all__, 'CallHandler' in dir(operad), 'Schema' in operad.__all__)"
    assert run(code, "operad_calls").stdout == "False False True\n"
    assert run("from operad import *; print('CallHandler' in globals())", "operad_calls").stdout == "False\n"


def test_a_function_is_registered_and_called_without_any_other_distribution() -> None:
    hidden = ("operad_calls", "operad_auth", "operad_testing", "operad_rules", "operad_search", "operad_serve")
    assert run(FIRST, *hidden).stdout == "3\n"


def test_a_function_is_registered_and_called_without_importing_what_else_is_installed() -> None:
    done = run(FIRST + "import sys; print(sorted(name for name in sys.modules if name.startswith('operad_')))")
    names = {name.partition(".")[0] for name in eval(done.stdout.splitlines()[1])}
    assert names == {"operad_schema"}


def test_a_call_map_that_nobody_provides_names_the_distribution() -> None:
    done = run("import operad; operad.Plugins().call_map(object())")
    assert "operad-calls" in done.stderr
