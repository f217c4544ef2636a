"""The tutorial's code blocks run as they stand, one after the other."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import CodeType

from operad_cli.demo.bookshop import serve_bookshop

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def blocks() -> list[CodeType]:
    text = TUTORIAL.read_text()
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        line = text[: match.start()].count("\n") + 1
        code = "\n" * line + match[1]
        found.append(compile(code, str(TUTORIAL), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    return found


async def test_every_block_of_the_tutorial_runs() -> None:
    async with serve_bookshop() as url:
        scope: dict[str, object] = {"url": url, "__name__": "tutorial"}
        for code in blocks():
            result = eval(code, scope)
            if inspect.isawaitable(result):
                await result
