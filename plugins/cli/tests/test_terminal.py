"""What a person sees at a terminal of 80 columns: the transcripts in ``terminal/``, replayed in tmux.

A transcript is what the screen shows. ``$`` begins a command; ``...`` stands for what varies (on a line of its own,
for lines of any number); ``<<text>>`` is typed there, once what precedes it is shown, and ``<<^C>>`` is pressed;
``[exit N]`` is an exit code other than 0. What is run with NO_COLOR or TERM=dumb may show no escape sequence.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from operad_cli.app import application
from plugins.cli.tests.at_rest import wait_until_at_rest

HERE = Path(__file__).parent / "terminal"
TRANSCRIPTS = sorted(path.stem for path in HERE.glob("*.txt"))
SHOP = json.loads(HERE.with_name("tables.json").read_text("utf-8"))["shop"]
FUNCTIONS = '''
import asyncio
import enum
from operad import operation

class Case(enum.Enum):
    upper = "upper"
    lower = "lower"

@operation(namespace="text", type="query")
async def head(text: str, lines: int = 1) -> list[str]:
    """The first lines."""
    return text.splitlines()[:lines]

@operation(namespace="text", type="query")
async def convert(text: str, case: Case) -> str:
    """Other letters."""
    return getattr(text, case.value)()

@operation(namespace="text", type="query")
async def slow() -> None:
    """Take long."""
    await asyncio.sleep(60)

@operation(namespace="text", type="subscription")
async def count(to: int):
    """Count."""
    for number in range(to):
        yield number
    await asyncio.sleep(60)

@operation(namespace="text")
async def outer(context) -> int:
    """Call others."""
    await context.env.text.head({"text": "a"})
    await context.env.text.head({"text": 3})
    return 1
'''


class Screen:
    """A terminal of 80 columns and 24 lines, and the shell in it."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._server = ["tmux", "-S", str(home / "socket"), "-f", "/dev/null"]
        program = f"import runpy; runpy.run_path({str(HERE / 'shell.py')!r}, run_name='__main__')"
        shell = [sys.executable, "-c", program]
        self._tmux("new-session", "-d", "-s", "s", "-x", "80", "-y", "24", "-c", str(folder), "env", f"HOME={home}",
                   f"XDG_CACHE_HOME={home}", *shell)  # fmt: skip
        self._until(lambda shown: shown.rstrip() == "$")

    def close(self) -> None:
        """End the terminal and what runs in it."""
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        return subprocess.run([*self._server, *words], capture_output=True, text=True, check=True).stdout

    def shown(self, *options: str) -> str:
        """The screen and what has left it at the top."""
        return self._tmux("capture-pane", "-p", "-t", "s", "-S", "-2000", *options).rstrip("\n")

    def _until(self, is_there: object) -> str:
        end = time.monotonic() + 20
        while not is_there(shown := self.shown()):  # type: ignore[operator]  # a lambda below
            assert time.monotonic() < end, f"still waiting; the screen:\n{shown}"
            time.sleep(0.04)  # each look starts a process
        return shown

    def run(self, command: str, expected: list[str]) -> tuple[list[str], str]:
        """Type a command and its answers; the lines below it when it has ended, and them with their colours."""
        self._tmux("send-keys", "-t", "s", "-R", ";", "clear-history", "-t", "s")
        self._tmux("send-keys", "-t", "s", "-l", f"{command}\n")
        for number, line in enumerate(expected):
            if (typed := re.search("<<(.*?)>>", line)) is not None:
                before = _screen(expected[:number]) + _pattern(line[: typed.start()].rstrip())
                self._until(lambda shown, before=before: re.search(f"\n{before}", f"{shown}\n"))
                if typed[1] == "^C":
                    pane = int(self._tmux("display-message", "-p", "-t", "s", "#{pane_pid}"))
                    wait_until_at_rest(pane, children=True)  # before, readline sees a signal at the next key only
                    self._tmux("send-keys", "-t", "s", "C-c")
                else:
                    self._tmux("send-keys", "-t", "s", "-l", f"{typed[1]}\n")
        shown = self._until(lambda shown: shown.splitlines()[-1:] == ["$"] and command[:20] in shown)
        return shown.splitlines()[1:-1], self.shown("-e")


def _pattern(line: str) -> str:
    # What is quoted may be a long path, which the terminal wraps.
    return ".*?".join(re.escape(part) for part in line.split("...")).replace('".*?"', '"[^"]*"')


def _screen(lines: list[str]) -> str:
    return "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else _pattern(re.sub("<<(.*?)>>", r"\1", line)) + r" *\n"
        for line in lines
    )


def fits(expected: list[str], shown: list[str]) -> bool:
    """Whether the screen is as the transcript has it."""
    return re.fullmatch(_screen(expected), "".join(f"{line}\n" for line in shown)) is not None


def steps(name: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a transcript, each with the lines that it shows."""
    for step in re.split(r"^\$ ", (HERE / f"{name}.txt").read_text("utf-8"), flags=re.M)[1:]:
        command, *lines = step.rstrip("\n").splitlines()
        yield command, lines


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    folder = tmp_path / "shop"
    (folder / "functions").mkdir(parents=True)
    (folder / "functions" / "text.py").write_text(FUNCTIONS)
    (folder / "shop-openapi.json").write_text(json.dumps(SHOP))
    screen = Screen(folder, tmp_path)
    yield screen
    screen.close()


@pytest.mark.tmux
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_terminal_of_80_columns_shows_what_the_transcript_says(screen: Screen, name: str) -> None:
    for command, expected in steps(name):
        shown, coloured = screen.run(command, expected)
        assert fits(expected, shown), f"$ {command}\n" + "\n".join(shown)
        if command.startswith(("NO_COLOR=", "TERM=dumb")):
            assert "\x1b" not in coloured, command


@pytest.mark.tmux
def test_a_terminal_that_has_colours_shows_them(screen: Screen) -> None:
    assert "\x1b[" in screen.run("operad describe gone", [])[1]


def test_every_help_fits_80_columns_and_no_summary_of_a_command_is_cut() -> None:
    group = application()
    context = click.Context(group, info_name="operad", terminal_width=80, max_content_width=80)
    names = group.list_commands(context)
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        within = click.Context(command, info_name=f"operad {name}", terminal_width=80, max_content_width=80)
        assert all(len(line) <= 80 for line in command.get_help(within).splitlines()), name
    summaries = group.get_help(context).partition("Commands:")[2].strip().splitlines()
    assert len(summaries) == len(names)
    assert not [line for line in summaries if line.endswith("...")]
