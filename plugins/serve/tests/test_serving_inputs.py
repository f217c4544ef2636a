"""What the door checks of an input besides the registry: that it is what the document says."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from operad import OperationContext, OperationRegistry, OperationSpec, operation
from operad_serve import to_openapi
from plugins.serve.tests import front_door
from plugins.serve.tests.front_door import TABLES


async def same(input: Any, context: OperationContext) -> Any:
    return input


WHEN = {
    "type": "object",
    "properties": {"at": {"type": "string", "format": "date"}, "like": {"type": "string", "format": "regex"}},
}


@pytest.fixture
async def registry() -> Any:
    async with OperationRegistry(front_door.plugins()) as registry:
        nullable = {"type": ["string", "null"]}
        registry.register(OperationSpec(namespace="a", name="when", type="query", input_schema=WHEN), same)
        registry.register(OperationSpec(namespace="a", name="null", input_schema=nullable), same)
        yield registry


async def test_an_input_of_another_format_is_422_by_post_and_by_get(call: front_door.Client) -> None:
    by_post = await call.problem("POST", "/operations/a.when", json={"at": "yesterday"})
    by_get = await call.problem("GET", "/operations/a.when?at=yesterday")
    good = await call("GET", "/operations/a.when?at=2026-01-31")
    assert by_post["status"] == by_get["status"] == 422
    assert by_post["details"]["errors"][0] == {
        "path": "$.at",
        "message": "expected a date (RFC 3339) such as 2026-01-31, got 'yesterday' at $.at",
        "keyword": "format",
    }
    assert good.json() == {"at": "2026-01-31"}


@pytest.mark.parametrize(("node", "value", "status"), TABLES["formats"])
async def test_a_format_is_checked_wherever_it_is_in_a_schema(
    registry: OperationRegistry, node: Any, value: Any, status: int
) -> None:
    schema = {"type": "object", "properties": {"x": node}}
    registry.register(OperationSpec(namespace="a", name="deep", input_schema=schema), same)
    body = json.dumps({"x": value}).encode()
    answer = await front_door.asked(to_openapi(registry), "POST", "/operations/a.deep", body)
    assert answer.status == status
    assert status == 200 or len(answer.json()["details"]["errors"]) == min(20, len(value))


async def test_an_operation_that_is_registered_again_has_the_form_of_its_new_input(
    registry: OperationRegistry,
) -> None:
    app = to_openapi(registry)
    for schema, status in ((WHEN, 200), ({"type": "object", "required": ["a"], "properties": {"a": {}}}, 405)):
        registry.unregister("a.when")
        registry.register(OperationSpec(namespace="a", name="when", type="query", input_schema=schema), same)
        assert (await front_door.asked(app, "GET", "/operations/a.when")).status == status


async def test_the_document_says_the_formats_that_are_checked_and_no_others(registry: OperationRegistry) -> None:
    found = []
    for checks in (True, False):
        app = to_openapi(registry, check_formats=checks)
        paths = (await front_door.asked(app, "GET", "/openapi.json")).json()["paths"]
        body = paths["/operations/a.when"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        found.append([part.get("format") for part in body["properties"].values()])
        answer = await front_door.asked(app, "POST", "/operations/a.when", b'{"at": "yesterday"}')
        assert answer.status == (422 if checks else 200)
    assert found == [["date", None], [None, None]]


async def test_a_null_that_the_operation_takes_is_its_input_and_no_body_is_an_empty_object(
    call: front_door.Client,
) -> None:
    null = {"data": b"null", "headers": {"Content-Type": "application/json"}}
    assert (await call("POST", "/operations/a.null", **null)).json() is None
    for name, given in (("null", {}), ("when", null), ("when", {"json": {"at": None}})):
        assert (await call.problem("POST", f"/operations/a.{name}", **given))["status"] == 422


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
async def test_an_operation_that_is_not_there_is_404_whatever_the_method(
    call: front_door.Client, method: str
) -> None:
    answer = await call(method, "/operations/a.nothing")
    assert answer.status == 404
    if method != "HEAD":
        assert 'unknown operation "a.nothing"' in answer.json()["detail"]
        assert answer.json()["code"] == "OPERATION_NOT_FOUND"


async def test_those_who_ask_for_the_document_at_once_get_one_and_who_leaves_stops_it_for_nobody(
    registry: OperationRegistry, call: front_door.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = 0
    describe = registry.describe

    async def counting(operation_id: str) -> Any:
        nonlocal described
        described += 1
        await asyncio.sleep(0.01)
        return await describe(operation_id)

    monkeypatch.setattr(registry, "describe", counting)
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.005):
            await call("GET", "/openapi.json")
    answers = await asyncio.gather(*(call("GET", "/openapi.json") for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert described == 2  # two operations


HEAD = b"POST /operations/a.when HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SMUGGLED = b"GET /operations/a.when?at=2026-01-31 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
AMBIGUOUS = {
    "credentials": HEAD + b"Authorization: Bearer one\r\nauthorization: Bearer two\r\n\r\n",
    "origins": HEAD + b"Origin: http://127.0.0.1\r\nOrigin: http://evil.example\r\n\r\n",
    "types": HEAD + b"Content-Type: text/plain\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "lengths": HEAD
    + b"Content-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
}


@pytest.mark.parametrize("what", sorted(AMBIGUOUS))
async def test_a_request_that_two_readers_take_for_two_is_refused_and_the_connection_closed(
    registry: OperationRegistry, what: str
) -> None:
    async with (
        front_door.served(to_openapi(registry)) as base,
        front_door.connected(base, AMBIGUOUS[what]) as reader,
    ):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@dataclasses.dataclass
class Part:
    """A type of an input and of a result, whose schemas differ: unknown keys are valid in results alone."""

    name: str
    parts: list[Part] = dataclasses.field(default_factory=list)


async def test_no_two_components_have_one_title_and_every_method_has_an_id(registry: OperationRegistry) -> None:
    @operation(namespace="a", type="query")
    async def both(part: Part) -> Part:
        return part

    @operation(namespace="a", type="query")
    async def flat(n: int = 1) -> int:
        return n

    registry.register(both)
    registry.register(flat)
    found = (await front_door.asked(to_openapi(registry), "GET", "/openapi.json")).json()
    titles = [schema["title"] for schema in found["components"]["schemas"].values() if "title" in schema]
    assert sorted(titles) == ["Part", "Part2"]
    ids = [each["operationId"] for item in found["paths"].values() for each in item.values()]
    assert sorted(ids) == ["a.both", "a.flat", "a.flat.get", "a.null", "a.when", "a.when.get"]


async def test_the_id_of_a_method_is_not_that_of_another_operation(registry: OperationRegistry) -> None:
    registry.register(OperationSpec(namespace="a", name="when.get", input_schema=WHEN), same)
    paths = (await front_door.asked(to_openapi(registry), "GET", "/openapi.json")).json()["paths"]
    assert "operationId" not in paths["/operations/a.when"]["get"]
    assert paths["/operations/a.when.get"]["post"]["operationId"] == "a.when.get"
