"""What the tests of the command share."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from operad_cli.main import main

Run = Callable[..., tuple[int, str, str]]
"""Runs the command with arguments in this process: its exit code, and what it wrote to stdout and stderr."""
_entry_points = functools.cache(importlib.metadata.entry_points)
_metadata: Any = functools.cache(importlib.metadata.Distribution.metadata.fget)  # type: ignore[attr-defined]  # a property


def configure(text: str) -> None:
    """Add to the configuration."""
    with Path("operad.toml").open("a") as file:
        file.write(text)


def rows_of(table: str) -> list[Any]:
    """Return the rows of a table of commands, with the names of their behaviours."""
    tables = json.loads(Path(__file__).with_name("commands.json").read_text("utf-8"))[table]
    return [pytest.param(row, id=f"{name} {n}") for name, rows in tables.items() for n, row in enumerate(rows)]


def check(run: Run, row: dict[str, Any]) -> None:
    """Write the files of a row and run its command. It exits and prints as the row says."""
    if "gone" in row:
        Path(row["gone"]).unlink()
    for name, content in row.get("files", {}).items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    if "configure" in row:
        configure(row["configure"])
    code, out, err = run(*row["run"])
    assert code == row.get("code", 0)
    assert [part for part in row.get("out", []) if part not in out] == []
    assert [part for part in row.get("err", []) if part not in err] == []
    assert [part for part in row.get("without", []) if part in out + err] == []
    assert out == row.get("prints", out)
    assert err.startswith(row.get("begins", ""))
    assert err == "" or not row.get("silent")
    printed = json.loads(out) if "--json" in row["run"] and out else None
    assert printed == row.get("json", printed)
    assert row.get("keys", []) in ([], [*(printed or ())])
    assert [spec["id"] for spec in printed] == row["ids"] if "ids" in row else True
    statuses = {record["name"]: record["status"] for record in printed} if "statuses" in row else {}
    assert statuses.items() >= row.get("statuses", {}).items()
    for path, value in row.get("holds", {}).items():
        assert functools.reduce(lambda found, key: found[key], path.split("."), printed) == value


def respond(request: BaseHTTPRequestHandler, body: str, **headers: str) -> None:
    """Send a response."""
    request.send_response(200)
    for name, value in ({"Content-Type": "application/json"} | headers).items():
        request.send_header(name, value)
    with suppress(ConnectionError):  # the client may have left
        request.end_headers()
        request.wfile.write(body.encode())


@contextmanager
def http_server(respond: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Run an HTTP server on this machine. Yield its URL."""
    methods = {"do_GET": respond, "do_POST": respond, "log_message": lambda *_: None}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (BaseHTTPRequestHandler,), methods)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


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
    # The installed distributions stay the same, and it takes longer to read them than to run most commands.
    monkeypatch.setattr(importlib.metadata, "entry_points", _entry_points)
    monkeypatch.setattr(importlib.metadata.Distribution, "metadata", property(_metadata))
    return command
