"""The removal of `not` and `oneOf` over schemas that accept more values than their originals.

A schema accepts more values if a pattern is not run, or if an `enum` is too large. Under `not`, or as a second
match of `oneOf`, it would reject valid values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def loosen(fresh: Iterable[Any]) -> None:
    """Remove `not` and replace `oneOf` by `anyOf` over schemas that accept too much, in new definitions."""
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
