"""Files as inputs and results of `operad call`, and listings with pages."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from plugins.cli.tests.conftest import Run, configure, http_server, respond

OPERATIONS = """
import dataclasses
import enum
from operad import operation

@dataclasses.dataclass
class Book:
    title: str
    cover: bytes

class Genre(enum.Enum):
    NOVEL = "novel"
    ESSAY = "essay"

@operation(namespace="shop", type="query")
async def reverse(cover: bytes, more: list[bytes] | None = None) -> bytes:
    return cover[::-1] + b"".join(more or [])

@operation(namespace="shop", type="query")
async def note(text: str) -> str:
    return text

@operation(namespace="shop", type="query")
async def find(genre: Genre, deep: bool = False) -> dict[str, str]:
    return {"genre": genre.value}

@operation(namespace="shop", type="subscription")
async def ticks():
    yield 1
    yield 2
"""
DOCUMENT = json.loads(Path(__file__).with_name("shop.json").read_text())
PICTURE = b"\x89PNG\r\n\x1a\n\x00\xff"


@pytest.mark.parametrize("content", [PICTURE, b"hello world\n", b"hell"])
def test_a_field_of_bytes_takes_the_bytes_of_a_file_whatever_they_are(run: Run, content: bytes) -> None:
    Path("in").write_bytes(content)
    assert run("call", "shop.reverse", "cover@in", "more@in", "--output", "out") == (
        0,
        "",
        f"wrote {2 * len(content)} bytes to out\n",
    )
    assert Path("out").read_bytes() == content[::-1] + content


def test_a_pipe_gets_bytes_and_json_gets_base64(run: Run) -> None:
    Path("in").write_bytes(PICTURE)
    code, out, _ = run("call", "shop.reverse", "cover@in", "--data", "--json")
    assert (code, json.loads(out)) == (0, b64encode(PICTURE[::-1]).decode())
    operad = Path(sys.executable).with_name("operad")
    done = subprocess.run([operad, "call", "shop.reverse", "cover@in", "--data"], check=True, capture_output=True)
    assert done.stdout == PICTURE[::-1]
    command = [operad, "call", "shop.reverse", "cover@-", "--output", "-"]
    done = subprocess.run(command, check=True, capture_output=True, input=PICTURE)
    assert done.stdout == PICTURE[::-1]


def test_a_field_of_text_takes_text_and_refuses_other_bytes(run: Run) -> None:
    Path("text").write_text("hell")
    Path("picture").write_bytes(PICTURE)
    assert run("call", "shop.note", "text@text", "--data")[:2] == (0, "hell\n")
    code, _, err = run("call", "shop.note", "text@picture")
    assert code == 2
    assert "text: expected text in UTF-8, got other bytes in picture, at byte 0" in err


def test_output_saves_text_as_it_is_and_other_data_as_json(run: Run) -> None:
    assert run("call", "shop.note", "text=a", "--output", "out")[0] == 0
    assert Path("out").read_text() == "a"
    assert run("call", "shop.find", "genre=novel", "--output", "out")[0] == 0
    assert json.loads(Path("out").read_text()) == {"genre": "novel"}
    assert run("call", "shop.find", "genre=novel", "--output", "out", "--select", "genre")[0] == 0
    assert Path("out").read_text() == "novel"


def shop_api(request: BaseHTTPRequestHandler) -> None:
    """An API with an upload and a listing of three pages."""
    if request.command == "POST":
        body = request.rfile.read(int(request.headers["Content-Length"]))
        respond(request, body.split(b"\r\n\r\n")[0].decode().lower(), **{"Content-Type": "text/plain"})
        return
    page = int(parse_qs(urlsplit(request.path).query).get("page", ["1"])[0])
    link = {"Link": f'</items?page={page + 1}>; rel="next"'} if page < 3 else {}
    respond(request, json.dumps([{"id": 2 * page - 1}, {"id": 2 * page}]), **link)


@pytest.fixture
def shop(run: Run) -> Iterator[Run]:
    """The command with that API as a source."""
    with http_server(shop_api) as url:
        Path("shop.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": url}]}))
        configure('[sources.api]\ntype = "openapi"\nspec = "shop.json"\n')
        yield run


@pytest.mark.parametrize("content", [PICTURE, b"from __future__ import annotations"])
def test_an_uploaded_file_keeps_its_name_and_type(shop: Run, content: bytes) -> None:
    Path("b.png").write_bytes(content)
    code, out, err = shop("call", "api.upload", "photo@b.png", "--data")
    assert code == 0, err
    assert 'filename="b.png"' in out
    assert "image/png" in out


def test_all_pages_are_printed_as_one_line_of_json_for_each_item(shop: Run) -> None:
    code, out, _ = shop("call", "api.items", "--all")
    assert (code, [json.loads(line)["id"] for line in out.splitlines()]) == (0, [1, 2, 3, 4, 5, 6])
    assert shop("call", "api.items", "--pages", "2", "--select", "id")[1] == "1\n2\n3\n4\n"
    pages = [json.loads(line) for line in shop("call", "api.items", "--all", "--json")[1].splitlines()]
    assert [len(page["data"]) for page in pages] == [2, 2, 2]
    assert pages[0]["meta"]["source"] == "http"


def test_an_operation_without_pages_is_one_page_and_says_so(run: Run) -> None:
    code, out, err = run("call", "shop.find", "genre=novel", "--all")
    assert (code, json.loads(out)) == (0, {"genre": "novel"})
    assert '"shop.find" has no known pages' in err
    code, _, err = run("call", "shop.find", "genre=novel", "--all", "--output", "x")
    assert (code, "redirect standard output" in " ".join(err.split())) == (2, True)


def test_a_call_of_a_stream_says_that_there_is_more(run: Run) -> None:
    code, out, err = run("call", "shop.ticks", "--data")
    assert (code, out) == (0, "1\n")
    assert "for all of them: operad subscribe shop.ticks" in err
