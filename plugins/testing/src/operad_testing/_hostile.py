"""Hostile schemas that listings of a server must survive."""

from __future__ import annotations

from typing import Any

from operad_schema import Schema, lazy_schema


def hostile_schemas() -> dict[str, dict[str, Any] | Schema]:
    """Schemas of which something cannot be sent, or which cannot be had at all, by what is wrong with them.

    For tests of what serves a registry: registered beside a sound operation, none of them may take anything from
    the others' listing. ``digits``: an integer that Python does not write. ``surrogate``: text that is not UTF-8.
    ``deep``: nested deeper than JSON libraries go. ``object``: a default that is no JSON. ``unbuilt``: a lazy
    schema whose making raises `ValueError`.
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
