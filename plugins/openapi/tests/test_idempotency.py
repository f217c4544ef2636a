"""``Idempotency-Key`` over HTTP: sent with what changes something, and read where a registry is served."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from operad import FirstResults, OperationContext, OperationRegistry, OperationSpec
from operad_openapi import to_openapi
from plugins.openapi.tests import front_door


async def test_the_key_of_a_call_is_sent_with_requests_that_change_something(
    serve: Any, operations: Any, api: Any
) -> None:
    async def keys(request: web.Request) -> web.Response:
        return web.json_response(request.headers.getall("Idempotency-Key", []))

    header = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
    document = api(
        {
            "get /x": {"operationId": "get"},
            "post /x": {"operationId": "post"},
            "put /x": {"operationId": "put", "parameters": [header]},
        }
    )
    made = operations(document, await serve(keys))
    context = OperationContext(idempotency_key="k1")
    sent = {name: (await made[name].handler({}, context)).data for name in ("get", "post", "put")}
    assert sent == {"get": [], "post": ["k1"], "put": ["k1"]}
    assert (await made["put"].handler({"Idempotency-Key": "mine"}, context)).data == ["mine"]
    assert (await made["post"].handler({}, OperationContext())).data == []


@pytest.mark.parametrize("header", ["order-1", '"order-1"'])
async def test_a_request_that_is_sent_again_with_its_key_runs_once(header: str) -> None:
    runs: list[Any] = []

    async def order(input: Any, context: OperationContext) -> Any:
        runs.append(context.idempotency_key)
        return len(runs)

    async with OperationRegistry() as registry:
        registry.register(OperationSpec(namespace="shop", name="order"), order)
        registry.use(FirstResults())
        async with front_door.client_of(to_openapi(registry)) as call:
            headers = {"Idempotency-Key": header}
            for _ in range(2):
                answer = await call("POST", "/operations/shop.order", json={"item": "tea"}, headers=headers)
                assert (answer.status, answer.json()) == (200, 1)
            other = await call("POST", "/operations/shop.order", json={"item": "coffee"}, headers=headers)
            assert other.status == 422
            too_long = await call(
                "POST", "/operations/shop.order", json={}, headers={"Idempotency-Key": "x" * 300}
            )
            assert too_long.status == 422
            assert (await call("POST", "/operations/shop.order", json={})).json() == 2
    assert runs == ["order-1", None]
