# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "operad-testing", "pytest"]
# ///
"""Tests of an application: results of a server are recorded once and then replayed. Guide: docs/testing.md.

pytest test_weather.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operad import CallError, OperationRegistry, operation

asked: list[str] = []


@operation(namespace="weather", type="query")
async def today(city: str) -> dict[str, Any]:
    """Return the real weather; in your application this is an API or an MCP server of operad.toml."""
    asked.append(city)
    return {"city": city, "rain": False, "api_token": "secret"}


async def umbrella(registry: OperationRegistry, city: str) -> bool:
    """Return True if an umbrella is necessary. This is the application."""
    return bool((await registry.execute("weather.today", {"city": city})).data["rain"])


def test_it_rains_in_bonn(operad_registry: OperationRegistry, operad_operation: Any) -> None:
    """Use a fake operation."""
    operad_registry.register(operad_operation("weather.today", {"rain": True}))
    assert asyncio.run(umbrella(operad_registry, "Bonn"))


def test_an_error_of_the_weather_is_one_of_ours(operad_registry: OperationRegistry, operad_operation: Any) -> None:
    """Use a fake operation that fails as the real one does."""
    operad_registry.register(operad_operation("weather.today", CallError("NO_SUCH_CITY", "Atlantis is gone")))
    with pytest.raises(CallError, match="Atlantis"):
        asyncio.run(umbrella(operad_registry, "Atlantis"))


def test_with_what_the_server_said(operad_cassette: Any) -> None:
    """Replay `cassettes/` beside this file, without a server. `OPERAD_CASSETTES=record` records again."""
    registry = OperationRegistry()  # as your application opens its own
    registry.register(today)
    operad_cassette(registry)
    assert not asyncio.run(umbrella(registry, "Madrid"))
    assert asked == []
