"""What the tests of the command share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from operad_cli.main import main

Run = Callable[..., tuple[int, str, str]]
"""Runs the command with arguments in this process: its exit code, and what it wrote to stdout and stderr."""


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """The command sets up logging for its process; a test's process goes on."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command, wherever the test stands."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        output = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, output.out, output.err

    return run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run, request: pytest.FixtureRequest) -> Run:
    """The command in a new folder, whose configuration has the operations of the test's own module."""
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "served.py").write_text(request.module.OPERATIONS)
    (tmp_path / "operad.toml").write_text('[sources.local]\ntype = "scanner"\npath = "ops"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OPERAD_CONFIG", raising=False)
    return command
