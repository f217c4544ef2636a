"""The kinds of operations for MCP clients. This module does not import the SDK.

The kind of an operation is in its ``metadata["mcp"]``: ``{"kind": "resource", "uri": …}``, ``{"kind":
"resourceTemplate", "uriTemplate": …}`` or ``{"kind": "prompt"}``. Operations of an MCP source have this metadata.
An operation without a kind is a tool.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from operad import Identity, OperationSpec
from operad.names import safe_names
from operad.plugin import may_list

Json = dict[str, Any]
Naming = Literal["id", "name"]

_PASSED_ON = ("resources.list", "resources.read", "resources.subscribe", "prompts.list", "prompts.get")


def mcp_metadata(spec: OperationSpec) -> Mapping[str, Any]:
    """Return ``metadata["mcp"]`` of an operation; an empty mapping if it is missing or not a mapping."""
    found = spec.metadata.get("mcp")
    return found if isinstance(found, Mapping) else {}


def described(spec: OperationSpec, keys: Sequence[str]) -> Json:
    """Return the entry of an operation in a listing: ``keys`` of its metadata for MCP, its title and description.

    Keys that are missing, and texts that are empty, are left out.
    """
    metadata, own = mcp_metadata(spec), {"title": spec.title, "description": spec.description}
    found = {key: metadata[key] for key in keys if key in metadata}
    return found | {key: text for key, text in own.items() if text}


@attrs.frozen
class Upstream:
    """The operations that list, read and watch the resources of an MCP server behind the registry."""

    list: OperationSpec
    read: OperationSpec
    subscribe: OperationSpec | None
    """The operation that watches a resource; ``None`` if the server does not support it."""


@attrs.frozen
class Listing:
    """The operations of a registry at one moment, by kind, each under its name for clients."""

    tools: Mapping[str, OperationSpec]
    prompts: Mapping[str, OperationSpec]
    resources: Mapping[str, OperationSpec]
    """Resources by URI."""
    templates: Mapping[str, OperationSpec]
    """Templates by URI template."""
    upstreams: Sequence[Upstream]
    names: Mapping[str, str]
    """The names of tools and prompts for clients, by the ids of their operations."""
    guarded: bool
    """Whether any operation has access requirements."""
    sorted_tools: Sequence[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "sorted_tools", sorted(self.tools))

    @property
    def states(self) -> dict[str, dict[str, int]]:
        """The identities of the specs by name, for ``tools``, ``prompts`` and ``resources``.

        A list has changed if its state differs from the state before.
        """
        return {
            "tools": {name: id(spec) for name, spec in self.tools.items()},
            "prompts": {name: id(spec) for name, spec in self.prompts.items()},
            "resources": {
                **{uri: id(spec) for uri, spec in (*self.resources.items(), *self.templates.items())},
                **{upstream.list.id: id(upstream.list) for upstream in self.upstreams},
            },
        }

    def page(
        self, after: str | None, size: int, identity: Identity | None
    ) -> tuple[list[tuple[str, OperationSpec]], str | None]:
        """Return at most ``size`` tools after the name ``after`` that ``identity`` may call, and a cursor.

        The first page is after ``None``. The cursor is the last name if more tools follow, else ``None``.
        """
        start = 0 if after is None else bisect_right(self.sorted_tools, after)
        found: list[tuple[str, OperationSpec]] = []
        for name in self.sorted_tools[start:]:
            spec = self.tools[name]
            if may_list(spec.access_control, identity):
                if len(found) == size:
                    return found, found[-1][0]
                found.append((name, spec))
        return found, None


def listing_of(specs: Sequence[OperationSpec], naming: Naming) -> Listing:
    """Return operations as a `Listing`, with names that are made from ``id`` or ``name``, as ``naming`` states."""
    by_kind: dict[str, list[OperationSpec]] = {}
    for spec in specs:
        by_kind.setdefault(_kind(spec), []).append(spec)
    tools, tool_names = _named(by_kind.get("tool", ()), naming)
    prompts, prompt_names = _named(by_kind.get("prompt", ()), naming)
    return Listing(
        tools,
        prompts,
        _by(by_kind.get("resource", ()), lambda spec: mcp_metadata(spec)["uri"]),
        _by(by_kind.get("resourceTemplate", ()), lambda spec: mcp_metadata(spec)["uriTemplate"]),
        list(_upstreams(by_kind)),
        {**tool_names, **prompt_names},
        any(not spec.access_control.is_open for spec in specs),
    )


def _kind(spec: OperationSpec) -> str:
    metadata = mcp_metadata(spec)
    kind = metadata.get("kind")
    needed = {"resource": "uri", "resourceTemplate": "uriTemplate"}.get(str(kind))
    if needed is not None:
        return str(kind) if isinstance(metadata.get(needed), str) else "tool"
    return kind if kind == "prompt" or kind in _PASSED_ON else "tool"


def _named(specs: Sequence[OperationSpec], naming: Naming) -> tuple[dict[str, OperationSpec], dict[str, str]]:
    by_id = {spec.id: spec for spec in specs}
    names = safe_names({spec.id: _wanted_name(spec, naming) for spec in specs})
    return {name: by_id[id] for name, id in names.items()}, {id: name for name, id in names.items()}


def _wanted_name(spec: OperationSpec, naming: Naming) -> str:
    name = spec.name
    if name.startswith("prompts.get.") and isinstance(mcp_metadata(spec).get("name"), str):
        name = mcp_metadata(spec)["name"]  # its name at the server that it came from
    return name if naming == "name" else f"{spec.namespace}.{name}"


def _by(specs: Sequence[OperationSpec], key: Callable[[OperationSpec], str]) -> dict[str, OperationSpec]:
    found: dict[str, OperationSpec] = {}
    for spec in specs:
        found.setdefault(key(spec), spec)
    return found


def _upstreams(by_kind: Mapping[str, Sequence[OperationSpec]]) -> Iterator[Upstream]:
    """Yield the servers behind the registry. The operations of one server have the same prefix."""
    reads, watches = (
        {spec.id.removesuffix(kind): spec for spec in by_kind.get(kind, ())}
        for kind in ("resources.read", "resources.subscribe")
    )
    for spec in by_kind.get("resources.list", ()):
        prefix = spec.id.removesuffix("resources.list")
        if prefix in reads:
            yield Upstream(spec, reads[prefix], watches.get(prefix))
