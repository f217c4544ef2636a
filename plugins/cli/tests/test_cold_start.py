"""What a short command imports, completion, and how a command ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete

from operad_cli.app import application
from operad_cli.completion import cache
from plugins.cli.tests.conftest import Run

FUNCTION = """
from operad import operation

@operation(namespace="shop", type="query")
def price(book: str, count: int = 1) -> float:
    return 2.5 * count

@operation(namespace="shop")
def late() -> int:
    import atexit, threading
    atexit.register(print, "at exit")
    threading.Timer(0.05, print, ["in a thread"]).start()
    return 1
"""


def make_shop(folder: Path) -> Path:
    """A folder with a configuration."""
    (folder / "ops").mkdir(parents=True)
    (folder / "ops" / "shop.py").write_text(FUNCTION)
    (folder / "operad.toml").write_text('[sources.local]\ntype = "scanner"\npath = "ops"\n')
    return folder


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, and a cache of its own."""
    folder = make_shop(tmp_path / "shop")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


class Spec:
    """What the cache asks of a spec."""

    id = "shop.price"
    input_schema = SimpleNamespace(raw={"properties": {"book": {}, "count": {}}})


Process = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Process:
    """The command in a process of its own, when `operad list` has just seen what is installed.

    Both are done again where a folder of modules changed meanwhile, which may be another test's doing (the first one
    that compiles a module of `site-packages` makes a `__pycache__` there): then plugins are rightly looked for again.
    """
    folder = make_shop(tmp_path_factory.mktemp("process") / "shop")
    paths = {"/": {"get": {"operationId": "root", "responses": {}}}}
    document = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": paths}
    (folder / "api.json").write_text(json.dumps(document))
    api = '[sources.api]\ntype = "openapi"\nspec = "api.json"\nbase_url = "http://127.0.0.1:1"\nretries = 0\n'
    with (folder / "operad.toml").open("a") as file:
        file.write(api)
    listed: list[int] = []

    def process(words: str, python: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "XDG_CACHE_HOME": str(folder.parent / "cache"), **environment}
        while True:
            before = [os.stat(folder).st_mtime_ns for folder in sys.path if os.path.isdir(folder)]
            if listed != before:
                listed[:] = before
                process("list")
            command = ["sh", "-c", f"exec {sys.executable} {python} -m operad_cli.main {words}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=env)
            if before == [os.stat(folder).st_mtime_ns for folder in sys.path if os.path.isdir(folder)]:
                return done

    return process


TELLING = "-X importtime"


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The modules that a command imported, and their packages."""
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    return names | {name.partition(".")[0] for name in names}


def distributions(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("operad_") and "." not in name}


@pytest.mark.parametrize(
    ("words", "plugin", "absent"),
    [
        ("call shop.price book=x", "operad_scanner", {"cattrs", "aiohttp"}),
        ("call api.root", "operad_openapi", {"yaml", "jsonschema"}),  # no server is there
    ],
)
def test_a_call_imports_no_client_that_it_does_not_need_and_no_other_plugin(
    process: Process, words: str, plugin: str, absent: set[str]
) -> None:
    pytest.importorskip(plugin)
    done = process(words, TELLING)
    names = imported(done)
    assert done.returncode == int("aiohttp" in names) == int(plugin == "operad_openapi")
    assert names & {"rich", "mcp", "nats", "redis", "opentelemetry", *absent} == set()
    assert distributions(names) <= {
        plugin, "operad_auth", "operad_calls", "operad_cli", "operad_opentelemetry", "operad_rules", "operad_schema",
        "operad_search",
    }  # fmt: skip


def test_the_completion_of_an_id_imports_no_registry_and_no_plugin(process: Process) -> None:
    environment = {"_OPERAD_COMPLETE": "bash_complete", "COMP_WORDS": "operad call shop.p", "COMP_CWORD": "2"}
    done = process("", TELLING, **environment)
    assert done.stdout == "plain,shop.price\n"
    names = imported(done)
    assert names & {"asyncio", "attrs", "pluggy", "rich"} == set()
    assert {name for name in names if name.startswith("operad") and "." not in name} == {
        "operad", "operad_auth", "operad_cli",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "position", "shell", "expected"),
    [
        ("operad call shop.price book=1 ", "4", "bash", "plain,count=\n"),
        ("operad call shop.price co", "co", "fish", "plain,count=\n"),
        ("operad call shop.price b", "3", "zsh", "plain\nbook=\n_\n"),
        ('operad call "sh', "2", "bash", "plain,shop.price\n"),
        ("operad -c elsewhere.toml call ", "4", "bash", ""),
    ],
)
def test_shells_ask_for_completions(
    shop: Path, command: Run, monkeypatch: pytest.MonkeyPatch, words: str, position: str, shell: str, expected: str
) -> None:
    cache.remember("operad.toml", [Spec], None)
    for name, value in (
        ("_OPERAD_COMPLETE", f"{shell}_complete"),
        ("COMP_WORDS", words),
        ("COMP_CWORD", position),
    ):
        monkeypatch.setenv(name, value)
    assert command()[1].strip() == expected.strip()


def candidates(*words: str) -> list[str]:
    """The completions of the last word."""
    found = ShellComplete(application(), {}, "operad", "").get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found]


def test_options_before_an_id_are_passed_over(shop: Path) -> None:
    cache.remember("operad.toml", [Spec], None)
    assert candidates("-c", "operad.toml", "call", "--json", "sh") == ["shop.price"]
    assert candidates("call", "nothing.") == []
    assert "--timeout" in candidates("call", "shop.price", "--ti")


def test_what_a_shell_would_take_for_a_command_is_not_completed(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ok", "filter[name]", "$(reboot)", "a`b`", "a;b", "a\nb", "a b", "\x1b[2J", "a|b", "a&b", "a>b"]
    evil = [SimpleNamespace(id=f"shop.{name}", input_schema=SimpleNamespace(raw={})) for name in names]
    spec = SimpleNamespace(
        id="shop.ok", input_schema=SimpleNamespace(raw={"properties": {name: {} for name in names}})
    )
    cache.remember("operad.toml", [*evil[1:], spec], None)
    assert candidates("call", "") == ["shop.filter[name]", "shop.ok"]
    assert candidates("call", "shop.ok", "") == ["ok=", "filter[name]="]


def test_a_cache_that_others_can_write_completes_nothing(shop: Path) -> None:
    cache.remember("operad.toml", [Spec], None)
    (file,) = (shop.parent / "cache" / "operad").glob("completion-*.json")
    file.chmod(0o622)
    assert candidates("call", "s") == []


def test_a_broken_cache_completes_nothing_and_is_no_error(shop: Path) -> None:
    cache.remember("operad.toml", [Spec], None)
    (file,) = (shop.parent / "cache" / "operad").glob("completion-*.json")
    for content in ("", "{", "[]", '{"config": 1}', "[" * 9_999):
        file.write_text(content)
        assert candidates("call", "s") == []


def test_the_cache_is_read_and_written_by_its_user_alone_and_bounded(shop: Path) -> None:
    for number in range(300):
        cache.remember(f"{number}.toml", [Spec], None)
    files = list((shop.parent / "cache" / "operad").glob("completion-*"))
    assert len(files) <= 256
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert cache.recall("299.toml") == {"shop.price": {"book": [], "count": []}}


def test_an_answer_cannot_command_the_terminal(shop: Path, command: Run) -> None:
    (shop / "ops" / "evil.py").write_text(
        "from operad import operation\n@operation(namespace='shop')\ndef evil() -> str:\n"
        "    raise ValueError('\\x1b]0;owned\\x07')\n"
    )
    code, _, err = command("call", "shop.evil")
    assert (code, "owned" in err, "\x1b" in err) == (1, True, False)


def test_the_end_of_a_command_waits_for_threads_and_runs_what_was_registered(process: Process) -> None:
    assert process("call shop.late --data").stdout == "1\nin a thread\nat exit\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_streams_are_closed_runs_and_says_nothing_of_it(process: Process, closed: str) -> None:
    for words in ("call shop.price book=x", "call shop.nothing")[: 2 if "&- >&-" in closed else 1]:
        done = process(f"{words} {closed}")
        assert done.returncode == int("nothing" in words)
        assert "Error" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_is_an_error_in_one_line(process: Process) -> None:
    for words in ("call shop.price book=x", "describe shop.price"):
        done = process(f"{words} > /dev/full")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith("error: ")
        assert "No space left" in done.stderr
