"""What every test of the repository shares."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import signal
import unittest
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

REQUIRED = frozenset(part for part in os.environ.get("OPERAD_REQUIRE", "").split(",") if part)
"""Parts that have to be there: a test that skips for want of one of them fails."""

PEERS = frozenset({"peer", "browser", "node", "bash", "zsh", "fish", "tmux"})
"""Markers of tests that need what uv does not install here; `nox -s peers browser` runs them."""
APART = PEERS | {"slow"}
"""Markers of tests that a plain `pytest` leaves out; `nox -s slow` runs those marked `slow`."""
FOLDERS = {"peers": "peer", "brokers": "slow", "chaos": "slow", "packaging": "slow"}
"""Folders of tests/ in which each test has a marker."""

# How long an example takes says nothing on a machine that does other things, too.
settings.register_profile("operad", deadline=None)
settings.load_profile("operad")


LOOP = os.environ.get("OPERAD_LOOP", "asyncio")
"""The event loop that the tests run in: ``asyncio``, or ``uvloop`` if it is installed."""

ORDER = os.environ.get("OPERAD_ORDER", "")
"""A seed: the tests run in the order that it makes."""


def pytest_configure() -> None:
    """Choose the event loop, and heed SIGINT if a shell started the tests in its background.

    Without the second, child processes would inherit that SIGINT is ignored.
    """
    if LOOP not in ("asyncio", "uvloop"):
        raise pytest.UsageError(f"OPERAD_LOOP: expected asyncio or uvloop, got {LOOP!r}")
    if LOOP == "uvloop":
        # A policy reaches what pytest-asyncio's own hook does not: asyncio.run in tests, and operad.sync.
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run the whole suite in five processes, since its tests often wait; run a part of it in one."""
    return 5 if config.args == config.getini("testpaths") else 0


def is_quick(config: pytest.Config) -> bool:
    """Return True for a plain `pytest`: without files, without an expression, without peers that are required."""
    return config.args == config.getini("testpaths") and not config.option.markexpr and not REQUIRED & PEERS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked ``long`` unless OPERAD_LONG is set, and slow ones and peers from a plain `pytest`."""
    if ORDER:
        # Files in another order, and the tests of each: a file stays together, for the sake of its fixtures.
        order = random.Random(ORDER)  # noqa: S311  # no secret
        files = {path: order.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (files[item.path], order.random()))
    left_out: list[pytest.Item] = []
    for item in items:
        top, folder = [*item.nodeid.split("/"), ""][:2]
        if top == "tests" and (marker := FOLDERS.get(folder)):
            item.add_marker(marker)
        markers = {marker.name for marker in item.iter_markers()}
        if ("long" in markers and not os.environ.get("OPERAD_LONG")) or (is_quick(config) and markers & APART):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        left = set(left_out)
        items[:] = [item for item in items if item not in left]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Fail a test that skipped although its part is required."""
    # The conformance kit skips what an adapter does not declare; that is no missing part. Looked at first:
    # pytest makes a skip of its own of the kit's.
    undeclared = call.excinfo is not None and call.excinfo.errisinstance(unittest.SkipTest)
    report = yield
    wanted = REQUIRED & {marker.name for marker in item.iter_markers()}
    if report.skipped and not undeclared and wanted and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but OPERAD_REQUIRE wants {', '.join(sorted(wanted))}: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Fail a module that skipped as a whole where parts are required."""
    report = yield
    if REQUIRED and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped as a whole, but OPERAD_REQUIRE is set: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that were skipped because documents of other projects are missing."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if missing := sum("OPERAD_DOCUMENTS" in reason for reason in skipped):
        terminalreporter.write_line(f"{missing} tests need the folder OPERAD_DOCUMENTS; see CONTRIBUTING.md")
    if ORDER:
        terminalreporter.write_line(f"The order was made by OPERAD_ORDER={ORDER}")
