"""Prevent a subschema with an unchecked pattern or a large `enum` from rejecting by `not` or `oneOf`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def loosen(fresh: Iterable[Any]) -> None:
    """Remove such rejections from newly read definitions."""
    stack: list[Any] = [one.body for one in fresh if one.is_lax]
    while stack:
        node = stack.pop()
        if isinstance(node, bool):
            continue
        stack.extend([*node.here(), *node.parts()])
        if "not" in node and _takes_more(node["not"]):
            del node["not"]
        if "oneOf" in node and "anyOf" not in node and any(map(_takes_more, node["oneOf"])):
            node["anyOf"] = node.pop("oneOf")
            if "discriminator" in node:
                node["discriminator"]["union"] = "anyOf"


def _takes_more(body: Any) -> bool:
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, bool):
            continue
        if node.is_lax or (node.ref is not None and node.ref.is_lax):
            return True
        stack.extend([*node.here(), *node.parts()])
    return False
