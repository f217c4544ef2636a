"""Inputs as multipart/form-data, for operations with a field of bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from operad import OperationRegistry, operation
from operad_serve import to_openapi
from operad_serve.api.multipart import multipart_schema
from operad_serve.api.queries import Root
from plugins.serve.tests import front_door

PICTURE = b"\x89PNG\r\n\x1a\n--\r\n\x00\xff" + bytes(range(256))


@operation(namespace="shop")
async def put_cover(
    book: int,
    cover: bytes,
    more: list[bytes] | None = None,
    title: str | None = None,
    tags: list[str] | None = None,
    where: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Put a cover onto a book."""
    return {
        "book": book, "cover": b64encode(cover).decode(), "more": [len(each) for each in more or []],
        "title": title, "tags": tags, "where": where,
    }  # fmt: skip


FILE = {
    "anyOf": [
        {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("base64", "filename", "contentType")},
            "required": ["base64"],
        },
        {"type": "null"},
    ]
}


@operation(
    namespace="shop",
    input_schema={
        "type": "object",
        "properties": {"photo": FILE, "more": {"type": "array", "items": FILE}, "caption": {"type": "string"}},
    },
)
async def put_photo(input: Any) -> Any:
    """Take files with their names, as an API with uploads does."""
    return input


@pytest.fixture
async def client() -> AsyncIterator[front_door.Client]:
    async with OperationRegistry(front_door.plugins()) as registry:
        registry.register(put_cover)
        registry.register(put_photo)
        registry.register(front_door.add)
        app = to_openapi(registry, allowed_origins=["https://app.example"])
        async with front_door.client_of(app) as made:
            yield made


def form(**fields: Any) -> aiohttp.FormData:
    """A form whose fields of bytes are files."""
    data = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            data.add_field(name, each, filename="x.png" if isinstance(each, bytes) else None)
    return data


@pytest.mark.parametrize("content", [PICTURE, b"", b"text\r\n", bytes(range(256)) * 8])
async def test_a_form_with_files_is_an_input(client: front_door.Client, content: bytes) -> None:
    data = form(book="3", cover=content, more=[b"ab", b"c"], title="7", tags=["a", "b"], where='{"shelf": 2}')
    answer = await client("POST", "/operations/shop.put_cover", data=data)
    assert (answer.status, answer.json()) == (
        200,
        {
            "book": 3, "cover": b64encode(content).decode(), "more": [2, 1], "title": "7", "tags": ["a", "b"],
            "where": {"shelf": 2},
        },
    )  # fmt: skip


async def test_a_file_of_a_form_keeps_its_name_and_type(client: front_door.Client) -> None:
    data = form(more=[b"ab"], caption="x")
    data.add_field("photo", PICTURE, filename="me.png", content_type="image/png")
    answer = await client("POST", "/operations/shop.put_photo", data=data)
    assert (answer.status, answer.json()) == (
        200,
        {
            "photo": {"base64": b64encode(PICTURE).decode(), "filename": "me.png", "contentType": "image/png"},
            "more": [{"base64": "YWI=", "filename": "x.png", "contentType": "application/octet-stream"}],
            "caption": "x",
        },
    )


async def test_a_form_is_validated_as_any_input(client: front_door.Client) -> None:
    problem = await client.problem("POST", "/operations/shop.put_cover", data=form(book="x", cover=b"a"))
    assert (problem["status"], problem["code"]) == (422, "VALIDATION_ERROR")
    problem = await client.problem("POST", "/operations/shop.put_cover", data=form(book="1", cover=[b"a", b"b"]))
    assert 'expected the part "cover" once' in problem["detail"]


@pytest.mark.parametrize(
    ("kind", "body", "complaint"),
    [
        ("multipart/form-data", b"", "expected a boundary"),
        ('multipart/form-data; boundary=""', b"", "expected a boundary"),
        (f"multipart/form-data; boundary={'b' * 71}", b"", "expected a boundary"),
        (f"multipart/form-data; boundary={'b' * 70}", b"", "got the boundary 0 times"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n" * 1_000 + b"--b--", "with a name in every part"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n" * 1_001 + b"--b--", "at most 1000 parts"),
        ("multipart/form-data; boundary=b", b"nothing", "the boundary with -- after the last one"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n--b--", "Content-Disposition with a name"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n" * 2_000 + b"--b--", "at most 1000 parts"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\n\xff\r\n--b--',
            "expected text in UTF-8",
        ),
    ],
)
async def test_a_body_that_is_no_form_is_a_problem(
    client: front_door.Client, kind: str, body: bytes, complaint: str
) -> None:
    headers = {"Content-Type": kind}
    problem = await client.problem("POST", "/operations/shop.put_cover", data=body or b"x", headers=headers)
    assert problem["status"] == 400
    assert complaint in problem["detail"]


@pytest.mark.parametrize(
    ("node", "has_form"),
    [
        ({"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "null"}]}, False),
        ({"anyOf": [{"contentEncoding": "base64"}, {"type": "null"}]}, True),
        ({"anyOf": [{"contentEncoding": "base64"}, {"type": "integer"}]}, False),
        ({"type": "array", "items": {"type": "string"}}, False),
        ({"type": "array", "items": {"anyOf": [{"contentEncoding": "base64"}, {"type": "null"}]}}, False),
        ({"anyOf": [{"anyOf": [{"anyOf": [{"contentEncoding": "base64"}]}]}]}, True),
        ({"anyOf": [{"anyOf": [{"anyOf": [{"anyOf": [{"contentEncoding": "base64"}]}]}]}]}, False),
        (True, False),
    ],
)
def test_a_field_of_bytes_is_found_behind_its_alternatives(node: Any, has_form: bool) -> None:
    root = Root({"Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "null"}]}}, "#/$defs/")
    schema = {"type": "object", "properties": {"x": node}}
    assert (multipart_schema(schema, root) is not None) is has_form


async def test_a_form_from_a_page_of_another_origin_is_refused(client: front_door.Client) -> None:
    async def status(origin: str) -> int:
        data, headers = form(book="1", cover=b"a"), {"Origin": origin}
        return (await client("POST", "/operations/shop.put_cover", data=data, headers=headers)).status

    assert await status("https://app.example") == 200
    assert await status(client.base) == 200
    assert await status("https://evil.example") == 403


async def test_the_document_offers_a_form_only_where_there_is_a_file(client: front_door.Client) -> None:
    paths = (await client("GET", "/openapi.json")).json()["paths"]
    content = paths["/operations/shop.put_cover"]["post"]["requestBody"]["content"]
    properties = content["multipart/form-data"]["schema"]["properties"]
    assert properties["cover"] == {"type": "string", "contentMediaType": "application/octet-stream"}
    assert properties["more"]["items"] == properties["cover"]
    assert content["application/json"]["schema"]["properties"]["cover"]["contentEncoding"] == "base64"
    content = paths["/operations/shop.add"]["post"]["requestBody"]["content"]
    assert list(content) == ["application/json"]
