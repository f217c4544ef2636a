"""The guides: each of their Python blocks runs as it stands; one that has a ``main`` is run by it."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = (
    "calling",
    "auth",
    "interceptors",
    "typed-calls",
    "views",
    "sync",
    "idempotency",
    "rules",
    "gateway",
    "testing",
    "notebooks",
)
BLOCKS = [
    pytest.param(page, block, id=f"{page}-{number}")
    for page in GUIDES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE), start=1
    )
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_block_runs_as_it_stands(page: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": f"docs_{page}"}
    exec(compile(block, f"docs/{page}.md", "exec", dont_inherit=True), scope)
    main = scope.get("main")
    if inspect.iscoroutinefunction(main):
        asyncio.run(main())
    elif main is not None:
        main()
