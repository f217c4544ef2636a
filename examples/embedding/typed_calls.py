# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""Typed calls: operations made from functions, with the arguments and result types of the functions.

`mypy --strict` and pyright's strict mode check this file. Guide: docs/typed-calls.md.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import attrs

from operad import OperationContext, OperationRegistry, ResponseEnvelope, operation


@attrs.frozen
class Booking:
    """A room for a night."""

    room: str
    day: datetime.date
    guests: int = 2


@operation(namespace="hotel")
async def book(room: str, day: datetime.date, guests: int = 2) -> Booking:
    """Book a room."""
    return Booking(room, day, guests)


@operation(namespace="hotel", type="query")
async def week(room: str, start: datetime.date) -> AsyncIterator[Booking]:
    """Yield the bookings of a week, one at a time."""
    for days in range(7):
        yield Booking(room, start + datetime.timedelta(days))


async def nights(registry: OperationRegistry) -> int:
    """Call operations. This code needs the registry and the functions."""
    booking: Booking = await registry.call(book, "Blue", day=datetime.date(2026, 5, 1))
    found = [one.day async for one in registry.stream(week, booking.room, start=booking.day)]
    return len(found)


async def main() -> None:
    """Call operations with types and without."""
    registry = OperationRegistry()
    registry.register(book)
    registry.register(week)
    print(await nights(registry))

    urgent = registry.bound(context=OperationContext(trusted=True), timeout=2.0)
    booking = await urgent.call(book, "Green", datetime.date(2026, 5, 2), guests=1)
    print(booking.day.isoformat(), booking.guests)

    # By its id, with JSON, as a configuration or another process calls it.
    envelope: ResponseEnvelope[dict[str, object]] = await registry.execute(
        "hotel.book", {"room": "Red", "day": "2026-05-03"}
    )
    print(envelope.data)


if __name__ == "__main__":
    asyncio.run(main())
