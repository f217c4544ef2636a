"""What the door checks of an input besides the registry: that it is what the document says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operad import (
    CallError,
    OperationContext,
    OperationRegistry,
    OperationSpec,
)
from operad_serve import to_openapi
from operad_serve.api.formats import CHECKED, UNCHECKED, Formats
from operad_serve.problems import problem_of
from plugins.serve.tests import front_door

GOOD_AND_BAD: dict[str, tuple[list[Any], list[Any]]] = {
    "date": (["2024-02-29", "2026-12-31"], ["2023-02-29", "1900-02-29", "2026-13-01", "2026-1-1", ""]),
    "date-time": (["2024-02-29T12:00:00Z", "2026-01-01t00:00:00.5+01:30"], ["2026-01-01T00:00:00", "2026-01-01"]),
    "time": (["12:00:00Z", "23:59:60Z", "15:59:60-08:00"], ["12:00:00", "24:00:00Z", "12:59:60Z"]),
    "duration": (["P1D", "PT1H3S", "PT0.5S", "P2W"], ["P1.5D", "PT.5S", "P", "PT", "P1DT", "1D", "P1Y2D"]),
    "email": (["a@b.example", '"a b"@c.example', "a@[127.0.0.1]"], ["a", "a@", "a b@c.example", ".a@b.example"]),
    "hostname": (["a.example", "localhost"], ["-a", "a_b", "a" * 64, "a..b"]),
    "ipv4": (["127.0.0.1"], ["256.1.1.1", "01.2.3.4", "1.2.3"]),
    "ipv6": (["::", "::1", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"], ["1::2::3", "fe80::1%eth0", "12345::", ":"]),
    "uri": (["http://a.example/b?c#d", "urn:x:y", "http://[::1]:80/"], ["//a", "a b", "http://a/%zz", "é:x"]),
    "uri-reference": (["", "/a", "//a", "#f", "a:b"], ["1:a", "a#b#c", "[", "\\"]),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380", ""]),
    "json-pointer": (["", "/a~0"], ["a", "/~2"]),
    "idn-email": (["실례@실례.example"], ["실례", "@실례.example"]),
    "idn-hostname": (["실례.example"], ["〮실례.example", "a b"]),
    "iri": (["http://ƒøø.example/é"], ["é", "http://a b"]),
    "iri-reference": (["/é", ""], ["\\é", "#é b"]),
    "uri-template": (["/a/{b}{?c*}"], ["/a/{b", "/a}"]),
    "relative-json-pointer": (["0", "1/a~0", "2#"], ["/a", "-1", "01"]),
    "byte": (["aGk=", "", "aGk"], ["a=b", "?"]),
    "int8": ([127, -128, 1.0], [128, -129]),
    "int32": ([2**31 - 1], [2**31]),
    "int64": ([-(2**63)], [2**63]),
    "uint8": ([0, 255], [-1, 256]),
    "uint16": ([65_535], [65_536]),
    "uint32": ([2**32 - 1], [2**32]),
    "uint64": ([2**64 - 1], [2**64]),
    "int16": ([32_767], [32_768]),
}


def test_each_format_that_is_published_is_one_that_is_checked() -> None:
    assert set(GOOD_AND_BAD) == CHECKED
    assert not CHECKED & UNCHECKED


@pytest.mark.parametrize("name", sorted(GOOD_AND_BAD))
def test_a_format_lets_pass_what_its_standard_says(name: str) -> None:
    formats = Formats.of({"format": name})
    assert formats is not None
    good, bad = GOOD_AND_BAD[name]
    assert [value for value in good if formats.errors(value)] == []
    assert [value for value in bad if not formats.errors(value)] == []
    # What is no text is of no format of texts.
    assert bool(formats.errors("\ud800")) == ("int" not in name or name.endswith("pointer"))
    assert formats.errors(None) == formats.errors([]) == formats.errors(True) == []


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "properties": {
                "id": {"format": "uuid"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "additionalProperties": {"format": "date"},
            "patternProperties": {"^n_": {"format": "int32"}},
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        (TREE, {"below": [{"below": [{"id": "x"}]}]}, "$.below[0].below[0].id"),
        (TREE, {"other": "x", "n_1": 5, "n_2": 2**40}, "$.other"),
        (TREE, {"n_1": 5, "n_2": 2**40}, "$.n_2"),
        ({"prefixItems": [{}, {"format": "date"}], "items": {"format": "time"}}, [1, "x"], "$[1]"),
        ({"prefixItems": [{}], "items": {"format": "time"}}, ["x", "12:00:00Z", "x"], "$[2]"),
        ({"allOf": [{"type": "string"}, {"format": "date"}]}, "x", "$"),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, "x", "$"),
        ({"oneOf": [{"type": "string", "format": "date"}, {"type": "integer"}]}, "x", "$"),
        ({"if": {"type": "string"}, "then": {"format": "date"}, "else": {"format": "int32"}}, 2**31, "$"),
    ],
)
def test_a_format_is_checked_wherever_the_schema_says_it(schema: Any, value: Any, path: str) -> None:
    formats = Formats.of(schema)
    assert formats is not None
    assert formats.errors(value)[0]["path"] == path


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "maxLength": 1}]}, "x"),
        ({"if": {"type": "string"}, "then": {"format": "date"}}, 2**31),
        ({"properties": {"a": {"format": "date"}}}, "x"),
        ({"$ref": "#/$defs/nowhere", "$defs": {"other": {"format": "date"}}}, "x"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/a", "format": "colour"}, "b": {"format": "date"}},
            },
            "x",
        ),
    ],
)
def test_what_another_alternative_allows_or_no_schema_describes_is_of_every_format(
    schema: Any, value: Any
) -> None:
    formats = Formats.of(schema)
    assert formats is not None
    assert formats.errors(value) == []


def test_alternatives_that_refer_to_themselves_end() -> None:
    either = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"type": "string", "format": "date"}]}
    node = {"type": "object", "properties": {"b": either}}
    formats = Formats.of({"$ref": "#/$defs/a", "$defs": {"a": node}})
    assert formats is not None
    value: Any = {"b": "x"}
    for _ in range(60):
        value = {"b": value}
    formats.errors(value)  # 2 ** 60 steps would take for ever


def test_a_schema_without_formats_that_are_checked_costs_nothing() -> None:
    assert Formats.of({"properties": {"a": {"format": "password"}}}) is None
    assert Formats.of(True) is None


@pytest.mark.parametrize("name", sorted(name for name in CHECKED if "int" not in name or name.endswith("pointer")))
def test_the_check_of_a_long_hostile_text_takes_time_that_grows_with_its_length_alone(name: str) -> None:
    formats = Formats.of({"format": name})
    assert formats is not None
    for piece in ("a", "1", " ", "/", "a.", "a:", "%20", "=", "a@", "::", "P1", "~0", "-"):
        formats.errors(piece * 20_000 + "\0")  # quadratic work would take minutes


async def same(input: Any, context: OperationContext) -> Any:
    return input


WHEN = {
    "type": "object",
    "properties": {"at": {"type": "string", "format": "date"}, "like": {"type": "string", "format": "regex"}},
}


@pytest.fixture
async def registry() -> Any:
    async with OperationRegistry(front_door.plugins()) as registry:
        spec = OperationSpec(namespace="a", name="when", type="query", input_schema=WHEN)
        registry.register(spec, same)
        nullable = {"type": ["string", "null"]}
        registry.register(OperationSpec(namespace="a", name="null", input_schema=nullable), same)
        yield registry


async def test_an_input_of_another_format_is_422_by_post_and_by_get(registry: OperationRegistry) -> None:
    async with front_door.client_of(to_openapi(registry)) as call:
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


async def test_the_document_says_the_formats_that_are_checked_and_no_others(registry: OperationRegistry) -> None:
    found = []
    for checks in (True, False):
        async with front_door.client_of(to_openapi(registry, check_formats=checks)) as call:
            paths = (await call("GET", "/openapi.json")).json()["paths"]
            body = paths["/operations/a.when"]["post"]["requestBody"]["content"]["application/json"]["schema"]
            found.append([part.get("format") for part in body["properties"].values()])
            answer = await call("POST", "/operations/a.when", json={"at": "yesterday"})
            assert answer.status == (422 if checks else 200)
    assert found == [["date", None], [None, None]]


async def test_a_null_that_the_operation_takes_is_its_input_and_no_body_is_an_empty_object(
    registry: OperationRegistry,
) -> None:
    async with front_door.client_of(to_openapi(registry)) as call:
        taken = await call("POST", "/operations/a.null", data=b"null", headers=JSON)
        none = await call.problem("POST", "/operations/a.null")
        refused = await call.problem("POST", "/operations/a.when", data=b"null", headers=JSON)
        field = await call.problem("POST", "/operations/a.when", json={"at": None})
    assert taken.json() is None
    assert none["status"] == refused["status"] == field["status"] == 422


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
async def test_an_operation_that_is_not_there_is_404_whatever_the_method(
    registry: OperationRegistry, method: str
) -> None:
    async with front_door.client_of(to_openapi(registry)) as call:
        answer = await call(method, "/operations/a.nothing")
    assert answer.status == 404
    if method != "HEAD":
        assert 'there is no operation "a.nothing"' in answer.json()["detail"]
        assert answer.json()["code"] == "OPERATION_NOT_FOUND"


async def test_those_who_ask_for_the_document_at_once_get_one_and_who_leaves_stops_it_for_nobody(
    registry: OperationRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = 0
    describe = registry.describe

    async def counting(operation_id: str) -> Any:
        nonlocal described
        described += 1
        await asyncio.sleep(0.01)
        return await describe(operation_id)

    monkeypatch.setattr(registry, "describe", counting)
    async with front_door.client_of(to_openapi(registry)) as call:
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.005):
                await call("GET", "/openapi.json")
        answers = await asyncio.gather(*(call("GET", "/openapi.json") for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert described == 2  # two operations


async def test_an_error_of_an_mcp_server_that_is_passed_on_is_502() -> None:
    error = CallError("EXECUTION_ERROR", "no", {"message": "Invalid URL", "jsonrpcCode": -32602})
    assert problem_of(error, (), has_identity=False).status == 502


async def sent(base: str, request: bytes) -> bytes:
    """What a server answers to raw bytes until it closes the connection."""
    host, port = base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


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
    async with front_door.served(to_openapi(registry)) as base:
        answer = await sent(base, AMBIGUOUS[what])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
