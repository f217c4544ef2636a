"""docs/support.md says what the conformance tests declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_support_table_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "support_table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"run tools/support_table.py\n{done.stderr}"


def test_every_source_and_kind_of_the_repository_is_in_it() -> None:
    page = (ROOT / "docs" / "support.md").read_text()
    for name in ("openapi", "mcp", "scanner", "grpc", "http", "ws", "nats", "redis", "in process"):
        assert f"| `{name}` |" in page
