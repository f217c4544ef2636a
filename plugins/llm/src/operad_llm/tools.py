"""Describe operations as tools that a model may call, in the format of its API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

import attrs

from operad import ConfigError, Identity, OperationSpec, OperationType
from operad.names import safe_names
from operad.plugin import may_list
from operad_llm._schemas import Json, bounds, parameters, short_definitions, without
from operad_llm._strict import NotStrict, anthropic_strict, openai_strict

logger = logging.getLogger("operad.llm")

Format = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp"]
"""The API for which tools are made. ``openai`` means OpenAI's chat completions, ``openai-responses`` its Responses
API."""

FORMATS: tuple[Format, ...] = ("openai", "openai-responses", "anthropic", "gemini", "mcp")
MAX_DESCRIPTION = 1_024
"""The maximum length of a description for OpenAI, in characters."""
MAX_TOOLS = 128
"""The maximum number of tools in one request to OpenAI."""
MAX_FIELD = 64
"""The maximum length of the name of an argument or definition for Anthropic, in characters."""
_GEMINI_DROPPED = frozenset({"$schema", "discriminator", "exclusiveMinimum", "exclusiveMaximum"})
_AT_ROOT = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")


class Registry(Protocol):
    """The source of tools: a registry, or a view of a registry."""

    def specs(self) -> Sequence[OperationSpec]:
        """Return the specs of all operations."""

    def search(self, query: str, limit: int = 10) -> list[OperationSpec]:
        """Return the specs of at most ``limit`` operations that match a query, best first."""


@attrs.frozen
class ToolReport:
    """A report on how an operation was changed to become a tool."""

    operation_id: str
    name: str
    strict: bool
    """Whether the API enforces the schema when the model writes arguments."""
    lost: tuple[str, ...] = ()
    """The parts of the operation that the format cannot express. The model does not see them, but calls are still
    checked."""


class ToolList(list[dict[str, Any]]):
    """A list of tool definitions, ready for JSON, with their reports and the ids of their operations."""

    def __init__(self, definitions: Iterable[dict[str, Any]], report: Sequence[ToolReport]) -> None:
        super().__init__(definitions)
        self.report = list(report)
        """The reports, in the order of the tools."""
        self.names: dict[str, str] = {one.name: one.operation_id for one in report}
        """Name of a tool -> id of its operation."""

    @property
    def lossy(self) -> list[ToolReport]:
        """The reports of tools that cannot express some part of their operations."""
        return [one for one in self.report if one.lost]


def tools(
    registry: Registry,
    format: Format = "openai",
    *,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    identity: Identity | None = None,
    trusted: bool = False,
    strict: bool = False,
    query: str | None = None,
    max_tools: int | None = None,
) -> ToolList:
    """Return the operations of a registry as tools of a model, sorted by id, or by rank if there is a ``query``.

    Args:
        registry: the registry with the operations.
        format: the API for which the tools are made.
        include: shell patterns of ids of operations; ``None`` for all.
        exclude: shell patterns of ids of operations to leave out.
        identity: the caller that lets the model call; only operations that this identity may call are returned.
            ``None`` for an anonymous caller.
        trusted: whether to return tools without an access check.
        strict: whether the API (only OpenAI's and Anthropic's) is to enforce the schemas. If it cannot enforce
            the schema of a tool, the report of the tool states the reason.
        query: return only operations that match these words, best first; it may be the text of a prompt.
        max_tools: the maximum number of tools; default: 128 for OpenAI, else no limit.

    Raises:
        ConfigError: ``format`` is unknown, ``include`` or ``exclude`` is a string; or there are more tools than
            ``max_tools`` and no ``query`` to select among them.
    """
    if format not in FORMATS:
        raise ConfigError(f'format: expected one of {", ".join(FORMATS)}, got "{format}"')
    specs = [spec for spec in registry.specs() if trusted or may_list(spec.access_control, identity)]
    specs = [spec for spec in specs if _matches(spec.id, include, exclude)]
    limit = max_tools if max_tools is not None else (MAX_TOOLS if format.startswith("openai") else None)
    if query is not None:
        wanted = {spec.id for spec in specs}
        best = [spec for spec in registry.search(query, len(registry.specs())) if spec.id in wanted]
        specs = best[:limit]
    elif limit is not None and len(specs) > limit:
        raise ConfigError(
            f"expected at most {limit} tools for one request, got {len(specs)} operations; select some with "
            "include=, or with query= and the text of the prompt"
        )
    names = {id: name for name, id in names_of(registry).items()}
    made = [_tool(names[spec.id], spec, format, strict) for spec in specs]
    return ToolList([definition for definition, _ in made], [report for _, report in made])


def names_of(registry: Registry) -> dict[str, str]:
    """Return a mapping from the name of each tool to the id of its operation.

    Names are made from all operations, not only from visible ones, so that a name has the same meaning for all.
    """
    return safe_names({spec.id: spec.id for spec in registry.specs()})


def _matches(operation_id: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    if isinstance(include, str) or isinstance(exclude, str):
        raise ConfigError('include and exclude: expected a list of patterns, got a string; write ["…"]')
    return (include is None or any(fnmatchcase(operation_id, pattern) for pattern in include)) and not any(
        fnmatchcase(operation_id, pattern) for pattern in exclude
    )


def _tool(name: str, spec: OperationSpec, format: Format, strict: bool) -> tuple[dict[str, Any], ToolReport]:
    lost: list[str] = []
    try:
        schema, _ = parameters(spec)
    except Exception as error:  # noqa: BLE001  # a source's own: one that fails leaves the other tools
        logger.warning("the tool of %s is offered without a schema of its arguments: %s", spec.id, error)
        lost.append(f"the schema: {error}")
        schema = {"type": "object", "properties": {}}
    is_strict = False
    if strict and format in ("openai", "openai-responses", "anthropic"):
        try:
            held = (anthropic_strict if format == "anthropic" else openai_strict)(schema)
            if gone := bounds(schema) - bounds(held):
                lost.append(f"not enforced: {', '.join(sorted(gone))}")
            schema, is_strict = held, True
        except NotStrict as error:
            lost.append(f"not strict: {error}")
    schema = _ADAPTED[format](schema, lost)
    description = _description(spec)
    if format.startswith("openai") and len(description) > MAX_DESCRIPTION:
        description = description[: MAX_DESCRIPTION - 1] + "…"
        lost.append(f"the description beyond {MAX_DESCRIPTION} characters")
    definition = _DEFINED[format](name, description, schema, is_strict)
    if format == "mcp":
        definition.update(_mcp_words(spec))
    return definition, ToolReport(spec.id, name, is_strict, tuple(lost))


def _description(spec: OperationSpec) -> str:
    text = spec.description or spec.title or f"The operation {spec.id}."
    return f"Deprecated. {text}" if spec.deprecated else text


def _mcp_words(spec: OperationSpec) -> Json:
    is_query = spec.type is OperationType.QUERY
    hints = {"readOnlyHint": True} if is_query else {"readOnlyHint": False, "idempotentHint": spec.idempotent}
    return {"annotations": hints, **({"title": spec.title} if spec.title else {})}


# --- what each format takes ----------------------------------------------------------------------------


def _plain(schema: Json, lost: list[str]) -> Json:
    return schema


def _anthropic(schema: Json, lost: list[str]) -> Json:
    """Return a schema with names that Anthropic allows and without alternatives at the root."""
    found = [keyword for keyword in _AT_ROOT if keyword in schema]
    if found:
        lost.append(f"{', '.join(found)} at the root")
        schema = _flattened(schema)
    names = argument_names(schema.get("properties", {}))
    if any(name != own for own, name in names.items()):
        lost.append("names of arguments: " + ", ".join(name for own, name in names.items() if name != own))
        inverse = {name: own for own, name in names.items()}
        schema = {
            **schema,
            "properties": {inverse[name]: field for name, field in schema["properties"].items()},
            "required": [inverse.get(name, name) for name in schema.get("required", ())],
        }
    return short_definitions(schema, MAX_FIELD)


def _flattened(schema: Json) -> Json:
    """Return the schema without alternatives at its root, but with their properties."""
    properties = dict(schema.get("properties", {}))
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in schema.get(keyword) or ():
            if isinstance(branch, Mapping) and isinstance(branch.get("properties"), Mapping):
                for name, field in branch["properties"].items():
                    properties.setdefault(name, field)
    return {**{key: value for key, value in schema.items() if key not in _AT_ROOT}, "properties": properties}


def _gemini(schema: Json, lost: list[str]) -> Json:
    dropped: set[str] = set()
    made: Json = without(schema, _GEMINI_DROPPED, dropped)
    lost += sorted(dropped - {"$schema"})
    return made


def argument_names(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return a name that Anthropic accepts for each property, as a mapping from that name to the property's."""
    return (
        safe_names({name: name for name in properties}, limit=MAX_FIELD)
        if _odd(properties)
        else {name: name for name in properties}
    )


def _odd(properties: Mapping[str, Any]) -> bool:
    return any(
        not name or len(name) > MAX_FIELD or not all(c.isascii() and (c.isalnum() or c in "_.-") for c in name)
        for name in properties
    )


_ADAPTED: dict[Format, Callable[[Json, list[str]], Json]] = {
    "openai": _plain,
    "openai-responses": _plain,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "mcp": _plain,
}
_DEFINED: dict[Format, Callable[[str, str, Json, bool], dict[str, Any]]] = {
    "openai": lambda name, description, schema, strict: {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": schema,
            **({"strict": True} if strict else {}),
        },
    },
    "openai-responses": lambda name, description, schema, strict: {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": schema,
        "strict": strict,
    },
    "anthropic": lambda name, description, schema, strict: {
        "name": name,
        "description": description,
        "input_schema": schema,
        **({"strict": True} if strict else {}),
    },
    "gemini": lambda name, description, schema, strict: {
        "name": name,
        "description": description,
        "parametersJsonSchema": schema,
    },
    "mcp": lambda name, description, schema, strict: {
        "name": name,
        "description": description,
        "inputSchema": schema,
    },
}
