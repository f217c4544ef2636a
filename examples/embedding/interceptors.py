# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""Interceptors: functions through which all calls of the chosen operations pass, whatever their source.

The examples are an audit trail, a limit on concurrent calls, and a cache of results. Guide: docs/interceptors.md.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from operad import CallError, OperationContext, OperationRegistry, ResponseEnvelope, operation
from operad.plugin import InterceptedCall

Envelope = ResponseEnvelope[Any]
Proceed = Callable[[InterceptedCall], Awaitable[Envelope]]


def audit(write: Callable[[str], object]) -> Callable[[InterceptedCall, Proceed], Awaitable[Envelope]]:
    """Return an interceptor that writes a line for each call: the caller, the operation and the outcome."""

    async def tap(call: InterceptedCall, proceed: Proceed) -> Envelope:
        identity = call.context.identity
        who = None if identity is None else identity.id
        try:
            envelope = await proceed(call)
        except CallError as error:
            write(f"{who} {call.spec.id}: {error.code}")
            raise
        write(f"{who} {call.spec.id}: ok")
        return envelope

    return tap


def at_most(number: int) -> Callable[[InterceptedCall, Proceed], Awaitable[Envelope]]:
    """Return an interceptor that lets ``number`` calls run concurrently; others wait until their deadlines."""
    running = asyncio.Semaphore(number)

    async def tap(call: InterceptedCall, proceed: Proceed) -> Envelope:
        async with running:
            return await proceed(call)

    return tap


def remembered(seconds: float) -> Callable[[InterceptedCall, Proceed], Awaitable[Envelope]]:
    """Return an interceptor that caches results of queries, separately for each caller, for some seconds."""
    kept: dict[tuple[str, str | None, str], tuple[float, Envelope]] = {}

    async def tap(call: InterceptedCall, proceed: Proceed) -> Envelope:
        if call.spec.type != "query":
            return await proceed(call)
        identity = call.context.identity
        who = None if identity is None else identity.id
        key = call.spec.id, who, json.dumps(call.input, sort_keys=True)
        known = kept.get(key)
        if known is None or known[0] < time.monotonic():
            known = kept[key] = time.monotonic() + seconds, await proceed(call)
        return known[1]

    return tap


asked: list[str] = []


@operation(namespace="weather", type="query")
async def today(city: str) -> str:
    """Return the weather from a remote service."""
    asked.append(city)
    if city == "Atlantis":
        raise CallError("NO_SUCH_CITY", "Atlantis is under water")
    return "grey"


async def main() -> None:
    """Use all three interceptors, and request the weather three times."""
    registry = OperationRegistry()
    registry.register(today)
    lines: list[str] = []
    registry.use(audit(lines.append))
    registry.use(at_most(4), match="weather.*")
    registry.use(remembered(60), match="weather.*")

    for city in ("Bonn", "Bonn", "Atlantis"):
        try:
            envelope = await registry.execute("weather.today", {"city": city}, OperationContext(trusted=True))
            print(city, envelope.data)
        except CallError as error:
            print(city, error.code)
    print("remote requests:", asked)
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main())
