# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "operad-rules"]
# ///
"""Idempotency keys: a payment that is sent again after a lost response is not made twice.

For several processes, pass `operad_redis.RedisResults(url)` or `operad_nats.NATSResults(url)` to `FirstResults`.
Guide: docs/idempotency.md.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from operad import (
    CallError,
    ErrorCode,
    FirstResults,
    OperationContext,
    OperationRegistry,
    ResponseEnvelope,
    operation,
)
from operad.plugin import InterceptedCall

paid: list[int] = []


@operation(namespace="bank")
async def pay(cents: int, context: OperationContext) -> str:
    """Pay. Send `context.idempotency_key` to a bank that supports idempotency keys."""
    paid.append(cents)
    return f"receipt {len(paid)}"


async def pay_surely(registry: OperationRegistry, cents: int, attempts: int = 3) -> str:
    """Pay once, even if several attempts are necessary."""
    once = registry.bound(idempotency_key=str(uuid.uuid4()))  # one key for all attempts
    for attempt in range(attempts):
        try:
            answer = await once.execute("bank.pay", {"cents": cents}, timeout=2.0)
            return str(answer.data)
        except CallError as error:
            if error.code not in ("TIMEOUT", "UNAVAILABLE") or attempt == attempts - 1:
                raise
    raise AssertionError("unreachable")


def lost_once() -> Callable[..., Awaitable[ResponseEnvelope[Any]]]:
    """Return an interceptor that loses the first response, after the payment was made."""
    lost: list[Any] = []

    async def line(
        call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]
    ) -> ResponseEnvelope[Any]:
        envelope = await proceed(call)
        if not lost:
            lost.append(envelope)
            raise CallError(ErrorCode.UNAVAILABLE, "the connection broke", {"sent": True})
        return envelope

    return line


async def main() -> None:
    """Pay once although a response is lost, and once although two tasks request the same payment."""
    registry = OperationRegistry()
    registry.register(pay)
    registry.use(FirstResults())
    registry.use(lost_once(), order=-1)  # outside of FirstResults, like a network

    print(await pay_surely(registry, 100), paid)

    # Two concurrent requests with the same key: the second one waits for the result of the first.
    answers = await asyncio.gather(
        *(registry.execute("bank.pay", {"cents": 250}, idempotency_key="order-17") for _ in range(2))
    )
    print([answer.data for answer in answers], paid)


if __name__ == "__main__":
    asyncio.run(main())
