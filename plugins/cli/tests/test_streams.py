"""What a script meets that feeds a command and reads what it says: encodings, pipes, and what is no JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from operad_cli.options import find_configuration

OPERATIONS = """
from operad import operation

@operation(namespace="shop", type="query")
def echo(text: str) -> str:
    return text + " \\u00fc\\u20ac\\U0001f600"

@operation(namespace="shop", type="query")
def large() -> str:
    return "x" * 1_000_000
"""
COMMAND = [sys.executable, "-m", "operad_cli.main"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


pytestmark = pytest.mark.usefixtures("run")  # a folder with a configuration


def operad(*arguments: str, given: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, **environment}
    return subprocess.run([*COMMAND, *arguments], input=given, capture_output=True, check=False, env=env)


@pytest.mark.parametrize(
    "environment", [ASCII, {"PYTHONIOENCODING": "latin-1"}, {}], ids=["C", "latin-1", "UTF-8"]
)
def test_json_is_json_in_every_encoding_of_standard_output(environment: dict[str, str]) -> None:
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    done = operad("call", "shop.echo", "text=a", "--json", **environment)
    assert json.loads(done.stdout.decode(encoding))["data"] == "a ü€😀"


def test_half_of_a_pair_is_an_escape_of_json() -> None:
    done = operad("call", "shop.echo", "--json", "--data", "-i", '{"text": "\\ud800"}')
    assert json.loads(done.stdout) == "\ud800 ü€😀"


@pytest.mark.parametrize(
    ("mark", "environment"), [(b"", ASCII), (b"\xef\xbb\xbf", {})], ids=["in C", "with a mark"]
)
def test_json_from_standard_input_is_utf_8_in_every_locale(mark: bytes, environment: dict[str, str]) -> None:
    given = mark + '{"text": "ü"}'.encode()
    done = operad("call", "shop.echo", "-i", "-", "--json", "--data", given=given, **environment)
    assert json.loads(done.stdout) == "ü ü€😀"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b'{"text": "\xff"}', "expected UTF-8, got the byte 0xff at position 10"),
        (b"[" * 100_000, "nested too deeply"),
        (b"", "is empty"),
    ],
    ids=["Latin-1", "deep", "nothing"],
)
def test_input_that_is_not_json_is_an_error_of_usage(given: bytes, expected: str) -> None:
    done = operad("call", "shop.echo", "-i", "-", given=given)
    assert done.returncode == 2
    assert expected in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_in_the_middle_of_a_large_answer_is_seen(unbuffered: str) -> None:
    command = [*COMMAND, "call", "shop.large", "--data"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.skipif(os.name != "posix", reason="such pipes are POSIX's")
def test_a_large_answer_is_whole_at_the_end_of_a_pipe_that_does_not_wait() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [*COMMAND, "call", "shop.large", "--data"]
    with subprocess.Popen(command, stdout=writing) as process:
        os.close(writing)
        with open(reading, "rb") as file:
            assert file.read() == b"x" * 1_000_000 + b"\n"
    assert process.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="such folders are POSIX's")
def test_in_a_folder_that_was_removed_nothing_is_found_and_nothing_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_configuration() is None
    done = operad(_OPERAD_COMPLETE="bash_complete", COMP_WORDS="operad call ", COMP_CWORD="2")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"", b"")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_project_above_that_may_not_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text("[tool.operad]")
    (below / "pyproject.toml").chmod(0)
    monkeypatch.chdir(below)
    assert find_configuration() == tmp_path / "operad.toml"
