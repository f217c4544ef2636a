"""What the APIs of models publish of the tools that they take, and nothing of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from operad_llm import ToolList

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,49}")


def schema_of(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function", tool)
    return next(
        function[key]
        for key in ("parameters", "input_schema", "parametersJsonSchema", "inputSchema")
        if key in function
    )


def schemas(node: Any) -> Iterator[Mapping[str, Any]]:
    """The schemas in a schema: not what only looks like one, in an enumeration or among properties."""
    if not isinstance(node, Mapping):
        return
    yield node
    for keyword in ("items", "additionalProperties"):
        yield from schemas(node.get(keyword))
    for keyword in ("anyOf", "allOf", "oneOf"):
        for child in node.get(keyword, ()):
            yield from schemas(child)
    for keyword in ("properties", "$defs"):
        for child in node.get(keyword, {}).values():
            yield from schemas(child)


def within_limits(listed: ToolList, format: str) -> None:
    """What each API publishes, and nothing of ours."""
    json.dumps(list(listed))
    for tool in listed:
        function = tool.get("function", tool)
        schema = schema_of(tool)
        assert NAME.fullmatch(function["name"]), function["name"]
        assert function["description"]
        assert schema["type"] == "object"
        assert "$ref" not in schema
        if format.startswith("openai"):
            assert len(function["description"]) <= 1024
            if function.get("strict"):
                assert not schema.keys() & {"anyOf", "oneOf", "allOf"}
                for node in schemas(schema):
                    assert not node.keys() & {
                        "allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "default",
                        "dependentRequired", "dependentSchemas",
                    }  # fmt: skip
                    assert "$ref" not in node or node.keys() == {"$ref"}
                    if "properties" in node:
                        assert node["additionalProperties"] is False
                        assert sorted(node["required"]) == sorted(node["properties"])
                    if node.get("type") == "array":
                        assert "items" in node
        if format == "openai-responses":
            assert "strict" in tool
        if format == "anthropic":
            assert not schema.keys() & {"anyOf", "oneOf", "allOf"}
            assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in schema["properties"])
            assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in schema.get("$defs", {}))
            if tool.get("strict"):
                for node in schemas(schema):
                    assert not node.keys() & {"oneOf", "minimum", "maximum", "minLength", "maxLength", "pattern"}
        if format == "gemini":
            for node in schemas(schema):
                assert not node.keys() & {"$schema", "discriminator", "exclusiveMinimum", "exclusiveMaximum"}
