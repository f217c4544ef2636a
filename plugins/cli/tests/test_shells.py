"""Completion in the shells themselves: what a user sees after the tabulator."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

OPERATIONS = """
from operad import operation

@operation(namespace="shop", type="query")
def price(book: str, count: int = 1) -> float:
    return 2.5 * count
"""


@pytest.fixture
def shop(run: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose operations a command has seen, and the command on the path."""
    folder = Path(sys.executable).parent
    if not (folder / "operad").exists():
        pytest.skip("the command operad is not beside this Python")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    subprocess.run(["operad", "list"], check=True, capture_output=True)
    return tmp_path


def needs(shell: str) -> str:
    """The shell, or a skip."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def typed(shell: list[str], *keys: tuple[str, str]) -> list[str]:
    """What an interactive shell shows after each text that is typed, once it shows what is waited for."""
    terminal, its = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "PS1": "> "}
    child = subprocess.Popen(shell, stdin=its, stdout=its, stderr=its, start_new_session=True, env=environment)
    os.close(its)
    shown: list[str] = []
    try:
        for text, mark in keys:
            os.write(terminal, text.encode())
            shown.append(_until(terminal, mark))
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
    return shown


def _until(terminal: int, mark: str) -> str:
    shown, end = "", time.monotonic() + 20
    while mark not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    assert mark in shown, shown
    return shown


@pytest.mark.bash
def test_bash_completes_ids_and_fields_and_puts_no_space_before_the_value(shop: Path) -> None:
    shell = [needs("bash"), "--norc", "--noprofile", "-i"]
    setup = ('source <(operad completion bash); echo rea""dy\n', "ready\r\n")
    *_, field = typed(shell, setup, ("operad call sho\t", "shop.price "), ("cou\t7 ", "count=7"))
    assert "count= " not in field


@pytest.mark.zsh
def test_zsh_completes_ids_and_fields_and_puts_no_space_before_the_value(shop: Path) -> None:
    shell = [needs("zsh"), "-f", "-i"]
    setup = ('autoload -U compinit; compinit -u -D; source <(operad completion zsh); echo rea""dy\n', "ready\r\n")
    *_, field = typed(shell, setup, ("operad call sho\t", "shop.price "), ("cou\t7 ", "count=7"))
    assert "count= " not in field


@pytest.mark.fish
def test_fish_completes_commands_ids_and_fields(shop: Path) -> None:
    script = "; ".join(
        f"complete -C '{line}'" for line in ("operad call sho", "operad call shop.price cou", "operad dem")
    )
    command = [needs("fish"), "-N", "-c", f"operad completion fish | source; {script}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert lines == ["shop.price", "count=", "demo"]
    assert done.stdout.splitlines()[-1].endswith("\tShow in a few seconds what operad does.")
