"""What is logged: nothing without a handler of the application, everything with one."""

from __future__ import annotations

import subprocess
import sys

import attrs

from operad import OperationRegistry
from operad.plugin import Source, SourceContext, SourceSession
from operad_testing import make_plugin, plugins_of

WARNS = """
import asyncio, sys
from operad import OperationRegistry, OperationSpec
if sys.argv[1:]:
    import logging
    logging.basicConfig()
registry = OperationRegistry()
async def buy(input, context): return [1]
registry.register(OperationSpec(namespace="shop", name="buy", output_schema={"type": "integer"}), buy)
asyncio.run(registry.execute("shop.buy"))
"""


def said(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", WARNS, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_warning_is_not_printed_unless_logging_is_set_up() -> None:
    assert said() == ""


def test_a_warning_is_printed_once_logging_is_set_up() -> None:
    assert said("set up").startswith("WARNING:operad:")


@attrs.frozen
class NoOptions:
    pass


async def test_a_source_logs_under_the_name_of_its_plugin() -> None:
    names = []

    async def load(config: NoOptions, context: SourceContext) -> SourceSession:
        names.append(context.logger.name)
        return SourceSession(())

    plugin = make_plugin("shop", operad_sources=[Source("shop", load, NoOptions)])
    async with OperationRegistry(plugins_of(plugin)) as registry:
        await registry.load("shop")
    assert names == ["operad.shop"]
