"""docs/support.md says what the conformance tests declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import versions

ROOT = Path(__file__).parents[2]


def test_the_support_table_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "support_table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"run tools/support_table.py\n{done.stderr}"


def test_every_source_and_kind_of_the_repository_is_in_it() -> None:
    page = (ROOT / "docs" / "support.md").read_text()
    for name in ("openapi", "mcp", "scanner", "grpc", "http", "ws", "nats", "redis", "in process"):
        assert f"| `{name}` |" in page


def test_the_page_has_the_result_of_each_run_with_other_versions() -> None:
    rows = [line.split(" | ") for line in versions.block().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in versions.WHAT]
    assert all("passed" in row[-1] or "not tested" in row[-1] for row in rows)


def test_each_dependency_has_one_floor_in_all_distributions() -> None:
    """One run with the lowest versions would not test two of them."""
    assert {name: found for name, found in versions.floors().items() if len(found) > 1} == {}


def test_a_floor_that_is_not_what_was_tested_is_named() -> None:
    tested = {name: str(*found) if found else "1" for name, found in versions.floors().items()}
    versions.check_floors(tested)
    with pytest.raises(SystemExit, match=r"attrs: .* promised, 1\.2 tested"):
        versions.check_floors({**tested, "attrs": "1.2"})
