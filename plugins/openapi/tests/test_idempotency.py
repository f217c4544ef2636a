"""``Idempotency-Key`` over HTTP: sent with requests that change something."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from operad import OperationContext
from plugins.openapi.tests.making import parameter


async def test_the_key_of_a_call_is_sent_with_requests_that_change_something(
    serve: Any, operations: Any, api: Any
) -> None:
    document = api(
        {
            "get /x": {"operationId": "get"},
            "post /x": {"operationId": "post"},
            "put /x": {"operationId": "put", "parameters": [parameter("Idempotency-Key", "header")]},
        }
    )

    def handler(request: web.Request) -> web.Response:
        return web.json_response(request.headers.getall("Idempotency-Key", []))

    made = operations(document, await serve(handler))
    context = OperationContext(idempotency_key="k1")
    sent = {name: (await made[name].handler({}, context)).data for name in ("get", "post", "put")}
    assert sent == {"get": [], "post": ["k1"], "put": ["k1"]}
    assert (await made["put"].handler({"Idempotency-Key": "mine"}, context)).data == ["mine"]
    assert (await made["post"].handler({}, OperationContext())).data == []
