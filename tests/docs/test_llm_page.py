"""The page on tools for models: its example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/llm.md"


def test_the_example_offers_a_tool_and_runs_its_call(tmp_path: Path) -> None:
    example = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert example is not None
    (tmp_path / "example.py").write_text(example[1])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "example.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "\"shop_price\" {'shop_price': 'shop.price'}",
        "{'role': 'tool', 'tool_call_id': 'call_1', 'content': '{\"article\":\"hat\",\"price\":\"12 EUR\"}'}",
    ]
