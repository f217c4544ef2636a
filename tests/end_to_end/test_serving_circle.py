"""What is served, loaded again by `from_openapi`: the same ids, schemas, errors, streams and bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from operad import CallError, OperationContext, OperationRegistry, OperationSpec, load_plugins, operation
from operad_auth import StaticTokens
from operad_openapi import http_envelope
from operad_serve import to_openapi
from plugins.serve.tests import front_door
from tests.kit import listening, needed_document, openapi

PLUGINS = load_plugins(only=["openapi"])
TABLES = json.loads(Path(__file__).with_name("circle.json").read_text())
UNION, PROBES = TABLES["union"], TABLES["probes"]


@operation(namespace="shop", type="subscription")
async def words(n: int = 2) -> AsyncIterator[str]:
    for number in range(n):
        yield f'"{number}"\n5'


@operation(namespace="shop", error_schemas=[{"code": "UNAVAILABLE", "httpStatus": 503}])
async def liar() -> None:
    raise CallError("UNAVAILABLE", "nothing ran", {"sent": False})


async def any_input(input: Any, context: OperationContext) -> Any:
    return input


async def order_events(input: Any, context: OperationContext) -> AsyncIterator[Any]:
    yield http_envelope({"order": 1}, event_type="packed", last_event_id="e-1")


@pytest.fixture
async def origin() -> AsyncIterator[OperationRegistry]:
    async with OperationRegistry(PLUGINS) as registry:
        for each in (*front_door.everything(), words, liar):
            registry.register(each)
        registry.register(front_door.SLASHED, front_door.who)
        union = {"input_schema": UNION, "output_schema": UNION, "idempotent": True, "tags": ["t"]}
        registry.register(OperationSpec(namespace="x", name="union", **union), any_input)
        registry.register(OperationSpec(namespace="x", name="events", type="subscription"), order_events)
        yield registry


@asynccontextmanager
async def copy_of(app: Any) -> AsyncIterator[OperationRegistry]:
    """The operations that an application serves, through HTTP, as ``far.<id>``."""
    async with front_door.served(app) as base, OperationRegistry(PLUGINS) as registry:
        await registry.load("openapi", namespace="far", spec=f"{base}/openapi.json", base_url=base)
        yield registry


@pytest.fixture
async def copy(origin: OperationRegistry) -> AsyncIterator[OperationRegistry]:
    async with copy_of(to_openapi(origin)) as registry:
        yield registry


async def test_ids_types_and_promises_are_the_same_after_the_prefix(
    origin: OperationRegistry, copy: OperationRegistry
) -> None:
    def told(spec: OperationSpec, id: str) -> Any:
        return id, spec.type, spec.title, spec.description, spec.deprecated, spec.idempotent

    open_ones = [spec for spec in origin.specs() if spec.access_control.is_open]
    assert [told(spec, spec.id) for spec in open_ones] == [
        told(spec, spec.id.removeprefix("far.")) for spec in copy.specs()
    ]


def schemas_are_the_same(origin: OperationRegistry, copy: OperationRegistry) -> None:
    for spec in copy.specs():
        original = origin.get_spec(spec.id.removeprefix("far."))
        assert original is not None
        assert spec.type is original.type
        for probe in PROBES:
            assert spec.input_schema.is_valid(probe) == original.input_schema.is_valid(probe), (spec.id, probe)
            assert spec.output_schema.is_valid(probe) == original.output_schema.is_valid(probe), (spec.id, probe)


async def test_schemas_accept_and_refuse_the_same(origin: OperationRegistry, copy: OperationRegistry) -> None:
    schemas_are_the_same(origin, copy)


async def test_calls_answer_the_same_data(copy: OperationRegistry) -> None:
    async def data(id: str, input: Any = None) -> Any:
        return (await copy.execute(id, input)).data

    assert await data("far.shop.add", {"a": 40}) == 42
    assert (await data("far.shop.find", {"names": [], "text": None}))["names"] == []
    assert await data("far.x.union", [1, 2]) == [1, 2]
    assert await data("far.x.union", {"next": {"next": {}}}) == {"next": {"next": {}}}
    assert await data("far.shop.picture") == b"\x89PNG"
    assert await data(f"far.{front_door.SLASHED.id}") is None


async def failure(registry: OperationRegistry, id: str, input: Any = None) -> CallError:
    with pytest.raises(CallError) as caught:
        await registry.execute(id, input)
    return caught.value


async def test_a_client_that_resumes_resumes_the_stream_behind_the_stream(
    origin: OperationRegistry, copy: OperationRegistry
) -> None:
    async def resumed(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        yield context.metadata.get("lastEventId")

    origin.register(OperationSpec(namespace="x", name="events", type="subscription"), resumed, replace=True)
    for event_id in ("e-7", None):
        context = OperationContext(metadata={"lastEventId": event_id} if event_id else {})
        assert [envelope.data async for envelope in copy.subscribe("far.x.events", {}, context)] == [event_id]


async def until_failure(envelopes: AsyncIterator[Any]) -> tuple[list[Any], CallError]:
    """The data of a stream, and the error that ends it."""
    got = []
    try:
        async for envelope in envelopes:
            got.append(envelope.data)  # noqa: PERF401  # what came before the error counts
    except CallError as error:
        return got, error
    raise AssertionError(f"the stream ended without an error after {got}")


async def test_a_declared_error_is_the_same_one_with_its_details_and_others_are_failures_of_an_upstream(
    copy: OperationRegistry,
) -> None:
    error = await failure(copy, "far.shop.buy")
    assert (error.code, error.message, error.details) == ("SOLD_OUT", "sold out", {"left": 0})
    spec = copy.get_spec("far.shop.buy")
    assert spec is not None
    (declared,) = spec.error_schemas
    assert (declared.code, declared.http_status, declared.schema.is_valid([])) == ("SOLD_OUT", 409, False)
    error = await failure(copy, "far.shop.upstream", {"status": 404})
    assert error.code == "EXECUTION_ERROR"
    assert error.details is not None
    assert error.details["problem"]["details"]["statusCode"] == 404


async def test_a_code_that_says_that_nothing_ran_is_never_believed(copy: OperationRegistry) -> None:
    assert (await failure(copy, "far.shop.liar")).code == "EXECUTION_ERROR"


async def test_streams_have_the_same_items_and_end_as_the_original_does(copy: OperationRegistry) -> None:
    async def items(id: str, input: Any = None) -> list[Any]:
        return [envelope.data async for envelope in copy.subscribe(id, input)]

    assert await items("far.shop.count", {"n": 3}) == [0, 1, 2]
    assert await items("far.shop.count", {"n": 0}) == []
    assert await items("far.shop.words") == ['"0"\n5', '"1"\n5']
    (envelope,) = [envelope async for envelope in copy.subscribe("far.x.events")]
    assert (envelope.meta.event_type, envelope.meta.last_event_id) == ("packed", "e-1")
    got, error = await until_failure(copy.subscribe("far.shop.breaks", {"n": 2}))
    assert (got, "it broke" in error.message) == ([0, 1], True)


async def test_a_stream_that_breaks_off_is_no_end() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        mark = {"id": "s.t", "type": "subscription"}
        content = {"content": {"text/event-stream": {"schema": True}}, "description": "s"}
        paths = {"/operations/s.t": {"post": {"x-operad": mark, "responses": {"200": content}}}}
        document = json.dumps(openapi(paths, **{"x-operad": {"version": 1}})).encode()
        is_document = scope["path"] == "/openapi.json"
        kind = b"application/json" if is_document else b"text/event-stream"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": document if is_document else b"data: 1\n\n"})

    async with copy_of(app) as registry:
        got, error = await until_failure(registry.subscribe("far.s.t"))
        assert (got, "broke off before its end" in error.message) == ([1], True)


async def test_who_may_not_call_is_told_so_across_the_circle(origin: OperationRegistry) -> None:
    app = to_openapi(origin, authenticate=StaticTokens(front_door.TOKENS))
    async with front_door.served(app) as base, OperationRegistry(PLUGINS) as registry:
        for name, token in (("root", "root-token-123456"), ("joe", "joe-token-123456")):
            options = {"base_url": base, "headers": {"Authorization": f"Bearer {token}"}}
            await registry.load("openapi", namespace=name, spec=f"{base}/openapi.json", **options)
        assert (await registry.execute("root.admin.secret")).data == "42"
        assert "joe.admin.secret" not in registry
        assert (await registry.execute(f"joe.{front_door.SLASHED.id}")).data == {"id": "joe", "scopes": []}


@pytest.mark.parametrize("name", ["petstore3", "opencode"])
async def test_other_peoples_documents_go_round_the_circle(name: str) -> None:
    spec = needed_document(name)
    async with OperationRegistry(PLUGINS) as origin:
        await origin.load("openapi", namespace="up", spec=spec, base_url="http://127.0.0.1:9")
        async with copy_of(to_openapi(origin)) as copy:
            assert [spec.id.removeprefix("far.") for spec in copy.specs()] == [spec.id for spec in origin.specs()]
            schemas_are_the_same(origin, copy)


async def test_a_null_for_a_field_of_another_api_is_refused_by_http_though_python_may_say_it() -> None:
    query = {"name": "q", "in": "query", "schema": {"type": "string"}}
    answer = {"200": {"description": "", "content": {"application/json": {"schema": {}}}}}
    document = openapi({"/a": {"get": {"operationId": "a", "parameters": [query], "responses": answer}}})

    async def upstream(request: web.Request) -> web.Response:
        return web.json_response(request.query_string)

    async with listening(upstream) as base, OperationRegistry(PLUGINS) as registry:
        await registry.load("openapi", namespace="up", spec=document, base_url=base)
        assert (await registry.execute("up.a", {"q": None})).data == ""
        async with front_door.client_of(to_openapi(registry)) as call:
            refused = await call.problem("POST", "/operations/up.a", json={"q": None})
            assert (await call("POST", "/operations/up.a", json={"q": "x"})).json() == "q=x"
    assert refused["details"]["errors"][0]["path"] == "$.q"
