"""The search for groups of schemas that refer to one another in a circle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def components(edges: Mapping[Any, list[Any]]) -> Iterator[frozenset[Any]]:
    """Yield the strongly connected components of a graph, by Tarjan's algorithm without recursion.

    `edges` maps each node to the nodes that it refers to. A component follows the components that it refers to.
    """
    order: dict[Any, int] = {}
    low: dict[Any, int] = {}
    stack: list[Any] = []
    on_stack: set[Any] = set()
    work: list[tuple[Any, Iterator[Any]]] = []

    def enter(name: Any) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        on_stack.add(name)
        work.append((name, iter(edges[name])))

    for start in edges:
        if start not in order:
            enter(start)
        while work:
            name, rest = work[-1]
            for ref in rest:
                if ref in edges and ref not in order:
                    enter(ref)
                    break
                if ref in on_stack:
                    low[name] = min(low[name], order[ref])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    group = set()
                    while name not in group:
                        group.add(stack.pop())
                    on_stack -= group
                    yield frozenset(group)
