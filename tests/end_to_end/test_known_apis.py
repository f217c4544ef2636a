"""Well-known APIs as a user meets them: their own documents, a configuration file, and a fake on 127.0.0.1.

GitHub's document comes from npm (package.json of tests/peers/prism), the others from the folder OPERAD_DOCUMENTS.
"""

from __future__ import annotations

import base64
import json
import re
import tracemalloc
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aiohttp import web

from operad import CallError, OperationRegistry, load_plugins
from tests.kit import Handler, listening, needed_document

MIB = 1 << 20
SIZES = [pytest.param(3 * MIB, id="3 MB"), pytest.param(300 * MIB, id="300 MB", marks=pytest.mark.long)]


HERE = Path(__file__).with_name("known_apis")
TABLES = dict(
    re.findall(r"^# (\w+)\n(.*?)(?=^# |\Z)", HERE.with_suffix(".toml").read_text(), re.DOTALL | re.MULTILINE)
)
DATA = json.loads(HERE.with_suffix(".json").read_text())


@asynccontextmanager
async def configured(folder: Path, name: str, answer: Handler) -> AsyncIterator[OperationRegistry]:
    """The registry of an operad.toml with one source: an API whose requests a handler answers, at ``URL``."""
    spec = needed_document(name)
    async with listening(answer) as url:
        (folder / "operad.toml").write_text(
            f'[sources.{name}]\ntype = "openapi"\nspec = "{spec}"\n{TABLES[name].replace("URL", url)}'
        )
        async with OperationRegistry.from_config(folder, load_plugins(only=["openapi"]), strict=True) as registry:
            yield registry


async def length(chunks: AsyncIterable[bytes]) -> int:
    """The length of a body that is not held."""
    return sum([len(chunk) async for chunk in chunks])


async def poured(request: web.Request, size: int, content_type: str) -> web.StreamResponse:
    """An answer of zeros, in pieces."""
    response = web.StreamResponse(headers={"Content-Type": content_type, "Content-Length": str(size)})
    await response.prepare(request)
    for _ in range(size // MIB):
        await response.write(bytes(MIB))
    return response


def large_file(path: Path, size: int) -> Path:
    """A file of zeros that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


@contextmanager
def little_memory() -> Iterator[None]:
    """At no time more than 24 MB are held by what is within."""
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        yield
        assert tracemalloc.get_traced_memory()[1] - before < 24 * MIB
    finally:
        tracemalloc.stop()


# --- GitHub ------------------------------------------------------------------------------------------


class Fake:
    """What arrived, and how large its files are."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.uploaded = 0
        self.size = 0


class GitHub(Fake):
    """Issues in pages, and release assets."""

    issues = [{"number": number, "title": f"issue {number}", "state": "open"} for number in range(1, 248)]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.path.endswith("/issues"):
            size, page = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
            found = self.issues[(page - 1) * size : page * size]
            links = {}
            if page * size < len(self.issues):
                following = request.url.update_query(page=page + 1)
                links = {"Link": f'<{following}>; rel="next", <{request.url}>; rel="last"'}
            return web.json_response(found, headers=links)
        if request.path.startswith("/uploads/"):
            self.uploaded = await length(request.content.iter_chunked(MIB))
            return web.json_response({"id": 1, "name": request.query["name"], "size": self.uploaded}, status=201)
        if request.path.endswith("/tarball/v1"):
            raise web.HTTPFound(str(request.url.with_path("/codeload/legacy.tar.gz")))
        if request.path.startswith("/codeload/"):
            return await poured(request, self.size, "application/x-gzip")
        return web.json_response({"message": "Not Found"}, status=404)


@pytest.fixture
async def github(tmp_path: Path) -> AsyncIterator[tuple[GitHub, OperationRegistry]]:
    fake = GitHub()
    async with configured(tmp_path, "github", fake.answer) as registry:
        yield fake, registry


async def test_github_is_found_paged_to_the_end_and_its_errors_are_its_own(
    github: tuple[GitHub, OperationRegistry],
) -> None:
    fake, registry = github
    found = [spec.id for spec in registry.search("list repository issues", limit=5)]
    assert "github.issues/list-for-repo" in found
    input = {"owner": "o", "repo": "r", "state": "all", "labels": "a,b", "milestone": "1", "per_page": 100}
    issues = [issue async for issue in registry.paginate("github.issues/list-for-repo", input, items=True)]
    assert [issue["number"] for issue in issues] == list(range(1, 248))
    assert [(r.query["milestone"], r.query["labels"], r.query.get("page")) for r in fake.seen] == [
        ("1", "a,b", None), ("1", "a,b", "2"), ("1", "a,b", "3")
    ]  # fmt: skip
    assert {r.headers["Authorization"] for r in fake.seen} == {"Bearer gh-t0ken"}
    assert {r.headers["X-GitHub-Api-Version"] for r in fake.seen} == {"2022-11-28"}
    with pytest.raises(CallError, match="Not Found") as caught:
        await registry.execute("github.repos/get", {"owner": "o", "repo": "missing"})
    assert caught.value.details["statusCode"] == 404


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_goes_to_github_and_comes_back_in_pieces(
    github: tuple[GitHub, OperationRegistry], tmp_path: Path, size: int
) -> None:
    fake, registry = github
    fake.size = size
    release = {"owner": "o", "repo": "r", "release_id": 7, "name": "big.zip"}
    with little_memory():
        body = large_file(tmp_path / "big.zip", size)
        envelope = await registry.execute(
            "github.repos/upload-release-asset", {**release, "body": body}, timeout=300
        )
        archive = {"owner": "o", "repo": "r", "ref": "v1"}
        received = await length(registry.download("github.repos/download-tarball-archive", archive))
    assert (envelope.meta.status_code, envelope.data["size"], fake.uploaded) == (201, size, size)
    assert fake.seen[0].path == "/uploads/repos/o/r/releases/7/assets"
    assert received == size


# --- Stripe ------------------------------------------------------------------------------------------


async def test_stripe_is_paged_by_cursor_for_a_connected_account_and_takes_forms(tmp_path: Path) -> None:
    customers = [{"id": f"cus_{n}", "object": "customer", "created": n, "livemode": False} for n in range(25)]
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        form = parse_qsl(await request.text())
        seen.append((request.headers["Stripe-Account"], request.headers["Authorization"], form))
        if request.method == "POST":
            return web.json_response({**customers[0], "email": dict(form)["email"]})
        start = [c["id"] for c in customers].index(request.query.get("starting_after", "cus_0"))
        start += "starting_after" in request.query
        page = customers[start : start + int(request.query["limit"])]
        more = start + len(page) < len(customers)
        return web.json_response({"object": "list", "url": "/v1/customers", "has_more": more, "data": page})

    async with configured(tmp_path, "stripe", answer) as registry:
        listed = [item["id"] async for item in registry.paginate("stripe.GetCustomers", {"limit": 10}, items=True)]
        made = await registry.execute(
            "stripe.PostCustomers",
            {"email": "a@b.example", "address": {"city": "Rome", "line1": "1 & 2"}, "metadata": {"k": "v"}},
        )
    assert listed == [customer["id"] for customer in customers]
    assert len(seen) == 4
    assert made.data["email"] == "a@b.example"
    account, credential, form = seen[-1]
    assert (account, credential) == ("acct_1", "Basic " + base64.b64encode(b"sk_test:").decode())
    assert {("address[city]", "Rome"), ("address[line1]", "1 & 2"), ("metadata[k]", "v")} <= set(form)


# --- OpenAI ------------------------------------------------------------------------------------------


class OpenAI(Fake):
    """Files, and completions that stream."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.path == "/v1/chat/completions":
            return await self.completion(request)
        if request.path.endswith("/content"):
            return await poured(request, self.size, "application/octet-stream")
        if request.method == "POST":
            async for part in await request.multipart():
                if part.name == "file":
                    assert part.filename == "train.jsonl"
                    while chunk := await part.read_chunk(MIB):
                        self.uploaded += len(chunk)
            return web.json_response(DATA["file"] | {"id": "file-0", "bytes": self.uploaded})
        start = int(request.query.get("after", "file-0").removeprefix("file-")) + ("after" in request.query)
        page = [{**DATA["file"], "id": f"file-{number}"} for number in range(start, min(start + 4, 10))]
        return web.json_response(
            {"object": "list", "data": page, "first_id": page[0]["id"], "last_id": page[-1]["id"],
             "has_more": start + 4 < 10}
        )  # fmt: skip

    async def completion(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if not asked.get("stream"):
            return web.json_response({"error": {"message": "only streams here", "type": "invalid"}}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in ("Hello", " ", "you"):
            delta = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            await response.write(f"data: {json.dumps({**DATA['chunk'], 'choices': [delta]})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
async def openai(tmp_path: Path) -> AsyncIterator[tuple[OpenAI, OperationRegistry]]:
    fake = OpenAI()
    async with configured(tmp_path, "openai", fake.answer) as registry:
        yield fake, registry


async def test_openai_streams_pages_and_says_what_was_wrong(openai: tuple[OpenAI, OperationRegistry]) -> None:
    fake, registry = openai
    asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
    stream = registry.subscribe("openai.createChatCompletion_stream", {"body": {**asked, "stream": True}})
    words = [envelope.data["choices"][0]["delta"]["content"] async for envelope in stream]
    assert "".join(words) == "Hello you"
    with pytest.raises(CallError, match="only streams here"):
        await registry.execute("openai.createChatCompletion", {"body": asked})
    listed = [item["id"] async for item in registry.paginate("openai.listFiles", {}, items=True)]
    assert listed == [f"file-{number}" for number in range(10)]
    assert {r.headers["OpenAI-Organization"] for r in fake.seen} == {"org-1"}


@pytest.mark.parametrize("size", SIZES)
async def test_a_multipart_upload_and_a_download_of_openai_are_whole(
    openai: tuple[OpenAI, OperationRegistry], tmp_path: Path, size: int
) -> None:
    fake, registry = openai
    fake.size = size
    with little_memory():
        file = large_file(tmp_path / "train.jsonl", size)
        envelope = await registry.execute("openai.createFile", {"file": file, "purpose": "fine-tune"}, timeout=300)
        received = await length(registry.download("openai.downloadFile", {"file_id": "file-1"}))
    assert envelope.data["bytes"] == fake.uploaded == received == size


# --- Discord -----------------------------------------------------------------------------------------


async def test_discord_waits_when_it_is_told_to_and_pages_by_the_last_member(tmp_path: Path) -> None:
    users = [{"id": str(10**17 + n), "username": f"u{n}", **DATA["user"]} for n in range(7)]
    hits: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        hits.append(request.headers["Authorization"])
        if len(hits) == 1:
            return web.json_response({"retry_after": 0}, status=429, headers={"Retry-After": "0"})
        after = request.query.get("after", "0")
        page = [user for user in users if int(user["id"]) > int(after)][: int(request.query["limit"])]
        return web.json_response([{"user": user, "roles": [], "nick": None} for user in page])

    async with configured(tmp_path, "discord", answer) as registry:
        pages = registry.paginate("discord.list_guild_members", {"guild_id": str(10**17), "limit": 3}, items=True)
        members = [member["user"]["username"] async for member in pages]
    assert members == [f"u{n}" for n in range(7)]
    assert set(hits) == {"Bot b0t"}


# --- opencode and the pet store ----------------------------------------------------------------------


async def test_opencode_serves_a_folder_and_its_events_are_a_stream(tmp_path: Path) -> None:
    folders: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        folders.append(request.query.get("directory"))
        if request.path == "/session":
            return web.json_response([])
        event = {"id": "e", "type": "server.connected", "properties": {}}
        return web.Response(text=f"data: {json.dumps(event)}\n\n", content_type="text/event-stream")

    async with configured(tmp_path, "opencode", answer) as registry:
        assert (await registry.execute("opencode.session.list")).data == []
        assert (await registry.execute("opencode.session.list", {"directory": "/other"})).data == []
        events = [envelope.data["type"] async for envelope in registry.subscribe("opencode.event.subscribe")]
    assert events == ["server.connected"]
    assert folders == ["/home/me", "/other", "/home/me"]


async def test_a_photo_goes_to_the_pet_store(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers["Content-Type"], await request.read()))
        return web.json_response({"code": 200, "type": "unknown", "message": "ok"})

    async with configured(tmp_path, "petstore3", answer) as registry:
        for photo in (b"\x89PNG", large_file(tmp_path / "photo.png", 4)):
            envelope = await registry.execute("petstore3.uploadFile", {"petId": 7, "body": photo})
            assert envelope.data["message"] == "ok"
    sent = ("/api/v3/pet/7/uploadImage", "application/octet-stream")
    assert seen == [(*sent, b"\x89PNG"), (*sent, b"\0\0\0\0")]
