"""What a short command imports, and that its short ways say what the long ones say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from operad_cli import cache
from operad_cli.completing import answer, candidates
from operad_cli.one_call import from_words

FUNCTION = """
from operad import operation

@operation(namespace="shop", type="query")
def price(book: str, count: int = 1) -> float:
    return 2.5 * count
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, and a cache of its own."""
    folder = tmp_path / "shop"
    (folder / "ops").mkdir(parents=True)
    (folder / "ops" / "shop.py").write_text(FUNCTION)
    (folder / "operad.toml").write_text('[sources.local]\ntype = "scanner"\npath = "ops"\n')
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


class Spec:
    """What the cache asks of a spec."""

    id = "shop.price"
    input_schema = SimpleNamespace(raw={"properties": {"book": {}, "count": {}}})


def operad(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "operad_cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def imported(*arguments: str, succeeds: bool = True) -> set[str]:
    """The modules that a command imports, and their packages."""
    command = [sys.executable, "-X", "importtime", "-m", "operad_cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=succeeds)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    return names | {name.partition(".")[0] for name in names}


def imported_after_list(*arguments: str, succeeds: bool = True) -> set[str]:
    """The modules that a command imports, when ``operad list`` has just seen what is installed.

    Done again where a folder of modules changed meanwhile, which may be another test's doing (the first one that
    compiles a module of ``site-packages`` makes a ``__pycache__`` there): then plugins are rightly looked for anew.
    """
    while True:
        before = [os.stat(folder).st_mtime_ns for folder in sys.path if os.path.isdir(folder)]
        assert operad("list").returncode == 0
        names = imported(*arguments, succeeds=succeeds)
        if before == [os.stat(folder).st_mtime_ns for folder in sys.path if os.path.isdir(folder)]:
            return names


def completed(words: str, position: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
    return operad(_OPERAD_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=position)


def test_a_call_of_a_scanned_function_imports_no_client_no_cattrs_and_no_other_plugin(shop: Path) -> None:
    names = imported_after_list("call", "shop.price", "book=x")
    assert names & {"click", "rich", "cattrs", "aiohttp", "mcp", "nats", "redis", "opentelemetry"} == set()
    assert {name for name in names if name.startswith("operad_") and "." not in name} <= {
        "operad_cli", "operad_scanner", "operad_opentelemetry", "operad_search",
    }  # fmt: skip


def test_a_call_of_a_scanned_function_imports_nothing_of_tls_and_nothing_that_its_schemas_do_not_need(
    shop: Path,
) -> None:
    names = imported_after_list("call", "shop.price", "book=x")
    assert "asyncio.base_events" in names
    assert names & {"ssl", "_ssl", "asyncio.sslproto", "hashlib", "_hashlib", "shutil", "lzma", "msgspec"} == set()
    assert names & {"operad.schemas.translating", "operad.calls.config", "operad.calls.remote"} == set()


WITHOUT = """
import sys
from operad_cli.without_tls import import_asyncio
import_asyncio()
import asyncio
assert "_ssl" not in sys.modules and "ssl" not in sys.modules, "it is there"
"""
TALK = """
async def main(chain, authority):
    import ssl
    assert asyncio.base_events.ssl.SSLContext is ssl.SSLContext
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(chain)
    async def served(reader, writer):
        writer.write(await reader.read(5))
        writer.close()
    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=of_server)
    port = server.sockets[0].getsockname()[1]
    told = []
    for trust in (authority, None):
        try:
            context = ssl.create_default_context(cafile=trust)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
            writer.write(b"hello")
            told.append((await reader.read()).decode())
            writer.close()
        except ssl.SSLCertVerificationError:
            told.append("refused")
    server.close()
    plain = socket.socket()
    plain.setblocking(False)
    with ssl.create_default_context().wrap_socket(plain, server_hostname="x", do_handshake_on_connect=False) as wrapped:
        try:
            await asyncio.get_running_loop().sock_recv(wrapped, 1)
        except TypeError:
            told.append("no TLS socket")
    from asyncio import sslproto
    import_module("asyncio.sslproto")
    told.append(sslproto.__spec__ is not None and sys.modules["ssl"] is ssl)
    print(told)

asyncio.run(main(*sys.argv[1:]))
"""


def test_asyncio_that_was_imported_without_tls_speaks_it_and_verifies_as_any_other(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, chain, file = trustme.CA(), str(tmp_path / "chain.pem"), str(tmp_path / "ca.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(chain)
    authority.cert_pem.write_to_path(file)
    said = []
    for begin in ("import asyncio, sys\n", WITHOUT):
        program = begin + "import socket\nfrom importlib import import_module\n" + TALK
        done = subprocess.run(
            [sys.executable, "-c", program, chain, file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said == ["['hello', 'refused', 'no TLS socket', True]\n"] * 2


def test_where_tls_or_asyncio_is_there_already_nothing_stands_in_for_it() -> None:
    for name in ("ssl", "asyncio"):
        program = (
            f"import sys, {name}\nfrom operad_cli.without_tls import import_asyncio\nimport_asyncio()\n"
            "import asyncio, ssl\nassert asyncio.base_events.ssl is ssl\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True)


def test_a_call_of_an_http_operation_imports_no_yaml_and_no_other_plugin(shop: Path) -> None:
    pytest.importorskip("operad_openapi")
    operations = {"/": {"get": {"operationId": "root", "responses": {}}}}
    document = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": operations}
    (shop / "api.json").write_text(json.dumps(document))
    with (shop / "operad.toml").open("a") as file:
        file.write(
            '[sources.api]\ntype = "openapi"\nspec = "api.json"\nbase_url = "http://127.0.0.1:1"\nretries = 0\n'
        )
    names = imported_after_list("call", "api.root", succeeds=False)  # nobody answers there
    assert "aiohttp" in names
    assert names & {"click", "rich", "yaml", "mcp", "nats", "redis", "opentelemetry", "jsonschema"} == set()
    assert {name for name in names if name.startswith("operad_") and "." not in name} <= {
        "operad_cli", "operad_openapi", "operad_opentelemetry", "operad_search",
    }  # fmt: skip


def test_the_completion_of_an_id_imports_nothing_but_its_own_three_modules(shop: Path) -> None:
    assert operad("list").returncode == 0
    command = [sys.executable, "-X", "importtime", "-m", "operad_cli.main"]
    environment = {"_OPERAD_COMPLETE": "bash_complete", "COMP_WORDS": "operad call sh", "COMP_CWORD": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    assert done.stdout == "plain,shop.price\n"
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "operad" in line}
    assert names <= {"operad_cli", "operad_cli.completing", "operad_cli.cache", "operad_cli.finding"}


@pytest.mark.parametrize(
    ("words", "position", "shell", "expected"),
    [
        ("operad call ", "2", "bash", "plain,shop.price\n"),
        ("operad call shop.price ", "3", "bash", "plain,book=\nplain,count=\n"),
        ("operad call shop.price book=1 ", "4", "bash", "plain,count=\n"),
        ("operad call shop.price co", "co", "fish", "plain,count=\n"),
        ("operad call shop.price b", "3", "zsh", "plain\nbook=\n_\n"),
        ("operad -c operad.toml call --json sh", "5", "bash", "plain,shop.price\n"),
        ("operad call nothing.", "2", "bash", ""),
        ('operad call "sh', "2", "bash", "plain,shop.price\n"),
        ("operad -c elsewhere.toml call ", "4", "bash", ""),
    ],
)
def test_ids_and_fields_are_completed(
    shop: Path, words: str, position: str, shell: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.remember("operad.toml", [Spec], None)
    variables = {"_OPERAD_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": position}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert answer() == expected


def test_what_a_shell_would_take_for_a_command_is_not_completed(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ok", "filter[name]", "$(reboot)", "a`b`", "a;b", "a\nb", "a b", "\x1b[2J", "a|b", "a&b", "a>b"]
    evil = [SimpleNamespace(id=f"shop.{name}", input_schema=SimpleNamespace(raw={})) for name in names]
    spec = SimpleNamespace(
        id="shop.ok", input_schema=SimpleNamespace(raw={"properties": {name: {} for name in names}})
    )
    cache.remember("operad.toml", [*evil[1:], spec], None)
    assert candidates(["call"], "") == ["shop.filter[name]", "shop.ok"]
    assert candidates(["call", "shop.ok"], "") == ["ok=", "filter[name]="]


def test_a_cache_that_others_can_write_completes_nothing(shop: Path) -> None:
    cache.remember("operad.toml", [Spec], None)
    (file,) = (shop.parent / "cache" / "operad").glob("completion-*.json")
    file.chmod(0o622)
    assert candidates(["call"], "s") == []


def test_commands_and_options_are_completed_as_well(shop: Path) -> None:
    assert "plain,call" in completed("operad ca", "1").stdout
    assert "--timeout" in completed("operad call shop.price --ti", "3").stdout


def test_a_broken_cache_completes_nothing_and_is_no_error(shop: Path) -> None:
    cache.remember("operad.toml", [Spec], None)
    (file,) = (shop.parent / "cache" / "operad").glob("completion-*.json")
    for content in ("", "{", "[]", '{"config": 1}', "[" * 9_999):
        file.write_text(content)
        assert candidates(["call"], "s") == []


def test_the_cache_is_read_and_written_by_its_user_alone_and_bounded(shop: Path) -> None:
    for number in range(300):
        cache.remember(f"{number}.toml", [Spec], None)
    files = list((shop.parent / "cache" / "operad").glob("completion-*"))
    assert len(files) <= 256
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert cache.recall("299.toml") == {"shop.price": ["book", "count"]}


def test_what_is_not_plainly_a_call_is_left_to_click() -> None:
    for words in (["call"], ["list"], ["call", "--help"], ["call", "a.b", "--timeout", "-1"], ["call", "a.b", "--wat"],
                  ["call", "a.b", "--timeout", "soon"], ["call", "a.b", "--select"], ["call", "a.b", "--", "-x=1"]):  # fmt: skip
        assert from_words(words) is None
    for words in (["call", "a.b"], ["-c", "x", "call", "a.b", "k=v"], ["call", "--timeout=1", "a.b", "--data"]):
        assert from_words(words) is not None


def test_a_plain_call_says_what_click_would_say(shop: Path) -> None:
    plain = operad("call", "shop.price", "book=x", "count=2", "--json")
    # -- is for click alone
    by_click = operad("call", "--json", "--", "shop.price", "book=x", "count=2")
    assert (plain.returncode, by_click.returncode) == (0, 0)
    assert json.loads(plain.stdout)["data"] == json.loads(by_click.stdout)["data"] == 5.0
    wrong = operad("call", "shop.price", "book")
    assert (wrong.returncode, "not KEY=VALUE" in wrong.stderr) == (2, True)
    assert "Traceback" not in wrong.stderr


def test_an_answer_cannot_command_the_terminal(shop: Path) -> None:
    (shop / "ops" / "evil.py").write_text(
        "from operad import operation\n@operation(namespace='shop')\ndef evil() -> str:\n"
        "    raise ValueError('\\x1b]0;owned\\x07')\n"
    )
    done = operad("call", "shop.evil")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr


def test_the_end_of_a_command_waits_for_threads_and_runs_what_was_registered(shop: Path) -> None:
    (shop / "ops" / "late.py").write_text(
        "import atexit, threading, time\nfrom operad import operation\n@operation(namespace='shop')\n"
        "def late() -> int:\n    atexit.register(print, 'at exit')\n"
        "    threading.Timer(0.05, print, ['in a thread']).start()\n    return 1\n"
    )
    assert operad("call", "shop.late", "--data").stdout == "1\nin a thread\nat exit\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_streams_are_closed_runs_and_says_nothing_of_it(shop: Path, closed: str) -> None:
    for words in ("call shop.price book=x", "call shop.nothing"):
        command = f"{sys.executable} -m operad_cli.main {words} {closed}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == int("nothing" in words)
        assert "Error" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_is_an_error_in_one_line_and_completes_nothing(shop: Path) -> None:
    for words in ("call shop.price book=x", "list"):
        command = f"{sys.executable} -m operad_cli.main {words} > /dev/full"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith("error: ")
        assert "No space left" in done.stderr
    words = "_OPERAD_COMPLETE=bash_complete COMP_WORDS='operad call sh' COMP_CWORD=2"
    command = f"{words} {sys.executable} -m operad_cli.main > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_large_answer_is_whole_at_the_end_of_a_pipe(shop: Path) -> None:
    (shop / "ops" / "large.py").write_text(
        "from operad import operation\n@operation(namespace='shop')\n"
        "def large() -> str:\n    return 'x' * 5_000_000\n"
    )
    assert operad("call", "shop.large", "--data").stdout == "x" * 5_000_000 + "\n"
