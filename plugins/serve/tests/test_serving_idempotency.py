"""``Idempotency-Key`` of requests to the HTTP API."""

from __future__ import annotations

from typing import Any

import pytest

from operad import FirstResults, OperationContext, OperationRegistry, OperationSpec
from operad_serve import to_openapi
from plugins.serve.tests import front_door


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
