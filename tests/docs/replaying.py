"""Replay the transcripts of a page: write its files, run its commands, compare what they show.

``...`` stands for what varies, on a line of its own for lines of any number.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^(?:\*\*`([\w.]+)`\*\*\n\n)?```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page of a language."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


WRITTEN = "http://127.0.0.1:33889"
"""The address of the demo's API on the pages."""


def pattern(expected: str) -> str:
    """Return an expression for the lines that a page shows below a command."""
    lines = []
    for line in expected.splitlines():
        text = ".*?".join(map(re.escape, line.split("...")))
        lines.append("(?:.*\n)*?" if line == "..." else f"{text} *\n")
    return "".join(lines)


async def replay(
    page: str,
    folder: Path,
    url: str = WRITTEN,
    *,
    programs: Path = Path(sys.executable).parent,
    install: Callable[[str], object] = lambda command: None,
) -> list[str]:
    """Write the files of a page and run its commands, as far as they are transcripts; return the commands.

    Args:
        page: its name in docs/.
        folder: where its files and commands are.
        url: the address of the demo's API.
        programs: where ``operad`` and ``python`` are.
        install: what installs, instead of pip.
    """
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    (folder / "home").mkdir()
    home = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home")}
    environment = {**os.environ, **home, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    run = []
    for name, kind, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8").replace(WRITTEN, url)):
        if name:
            (folder / name).write_text(text, encoding="utf-8")
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
            command, _, expected = step.partition("\n")
            if command.startswith("pip install"):
                install(command)
                continue
            done = await asyncio.to_thread(
                subprocess.run, ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                check=False, timeout=120, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            shown = f"$ {command}\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, shown
            assert re.fullmatch(pattern(expected), done.stdout), f"expected:\n{expected}\n{shown}"
            run.append(command)
    return run
