"""Schemas that a server cannot send or build, and that must not break its listings."""

from __future__ import annotations

from typing import Any

from operad_schema import Schema, lazy_schema


def hostile_schemas() -> dict[str, dict[str, Any] | Schema]:
    """Return schemas that cannot be sent or built, each under the name of its defect.

    Use them to test a server of a registry: register operations with them and one with a valid schema, and check
    that the listing still has the valid one. ``digits`` has an integer with more digits than Python can print,
    ``surrogate`` text that cannot be UTF-8, ``deep`` more levels than JSON libraries support, and ``object`` a
    default that is not JSON. Building the lazy schema ``unbuilt`` raises `ValueError`.
    """
    return {
        "digits": {"type": "object", "properties": {"a": {"maximum": 10**4400}}},
        "surrogate": {"type": "object", "description": "\ud800", "properties": {"\udc80": {"default": "\ud801"}}},
        "deep": _deep(),
        "object": {"type": "object", "properties": {"a": {"default": object()}}},
        "unbuilt": lazy_schema(_unbuilt),
    }


def _deep() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(900):
        schema = {"properties": {"a": schema}}
    return schema


def _unbuilt() -> Any:
    raise ValueError("no such document")
