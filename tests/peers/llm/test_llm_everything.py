"""Every operation of GitHub, Stripe and the everything server as a tool of every format, and called as one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad import (
    ErrorCode,
    Identity,
    OperationContext,
    OperationRegistry,
    from_schema,
    load_plugins,
    local_envelope,
)
from operad_llm import ToolList, run_tool_call, tools
from operad_llm.tools import FORMATS
from plugins.llm.tests.limits import schema_of, within_limits
from tests.kit import needed_document
from tests.peers.mcp.installed import EVERYTHING, NODE

PYTHON = Path(__file__).parent / ".venv/bin/python"
SCOPE = "tools"

VENDORS = """
import json, sys
from anthropic.types import ToolParam
from google.genai import types as gemini
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionTool
from pydantic import TypeAdapter

takes = {
    "openai": TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_python,
    "openai-responses": lambda listed: [FunctionTool.model_validate(one) for one in listed],
    "anthropic": TypeAdapter(list[ToolParam]).validate_python,
    "gemini": lambda listed: gemini.Tool(function_declarations=listed),
}
for format, listed in json.load(sys.stdin):
    takes[format](listed)
"""


@asynccontextmanager
async def registry_of(name: str) -> AsyncIterator[OperationRegistry]:
    """All operations of a source, for callers with the scope."""
    async with OperationRegistry(load_plugins(only=["openapi", "mcp"])) as registry:
        access = {"required_scopes": [SCOPE]}
        if name == "everything":
            if not EVERYTHING.exists():
                pytest.skip("npm install in tests/peers/mcp")
            program = {"command": str(NODE), "args": [str(EVERYTHING), "stdio"]}
            await registry.load("mcp", namespace=name, **program, access=access)
        else:
            await registry.load("openapi", namespace=name, spec=needed_document(name), access=access)
        yield registry


SOURCES = [
    "petstore3",
    pytest.param("everything", marks=[pytest.mark.long, pytest.mark.node]),
    pytest.param("stripe", marks=pytest.mark.long),
    pytest.param("github", marks=[pytest.mark.long, pytest.mark.node]),
]
AT_LEAST = {"petstore3": 19, "everything": 10, "stripe": 417, "github": 1223}


def offers(registry: OperationRegistry, identity: Identity) -> list[tuple[Any, ToolList]]:
    return [
        (format, tools(registry, format, strict=strict, identity=identity, max_tools=10_000))
        for format in FORMATS
        for strict in (False, True)
    ]


@pytest.mark.parametrize("name", SOURCES)
async def test_every_operation_is_a_tool_within_the_limits_and_its_call_is_the_callers(name: str) -> None:
    caller, stranger = Identity("ann", {SCOPE}), Identity("eve")
    arrived: list[tuple[str, str | None]] = []

    async def answer(call: Any, proceed: Any) -> Any:
        arrived.append((call.spec.id, None if call.context.identity is None else call.context.identity.id))
        return local_envelope({"ok": True}, call.spec.id)

    async def answer_each(call: Any, proceed: Any) -> Any:
        yield await answer(call, proceed)

    async with registry_of(name) as registry:
        ids = sorted(spec.id for spec in registry.specs())
        assert len(ids) >= AT_LEAST[name]
        for spec in registry.specs():
            await registry.describe(spec.id)
        assert not tools(registry, "mcp", identity=stranger)
        listings = offers(registry, caller)
        # Whatever comes through the checks of access and input is answered here: nobody is asked.
        registry.use(answer, subscribe=answer_each)
        for format, listed in listings:
            within_limits(listed, format)
            assert list(listed.names.values()) == ids
            assert len(set(listed.names)) == len(ids)
            await called(registry, format, listed, caller, stranger, arrived)


async def called(
    registry: OperationRegistry,
    format: Any,
    listed: ToolList,
    caller: Identity,
    stranger: Identity,
    arrived: list[tuple[str, str | None]],
) -> None:
    """Call each tool with arguments that its own definition accepts, as a model would, as each of the callers."""
    lossless = {one.name for one in listed.report if not [loss for loss in one.lost if "description" not in loss]}
    reached = 0
    for definition in listed:
        name = definition.get("function", definition)["name"]
        schema = from_schema(schema_of(definition))
        arguments = schema.cast({}, complete=True)
        payload = payload_of(format, name, arguments)
        del arrived[:]
        refused = await run_tool_call(
            registry, payload, offered=listed, format=format, context=OperationContext(identity=stranger)
        )
        assert ErrorCode.ACCESS_DENIED in json.dumps(refused)
        assert arrived == []
        answered = await run_tool_call(
            registry, payload, offered=listed, format=format, context=OperationContext(identity=caller)
        )
        if arrived:
            assert arrived == [(listed.names[name], "ann")]
            reached += 1
        else:
            assert ErrorCode.VALIDATION_ERROR in json.dumps(answered), answered
            assert name not in lossless or not schema.is_valid(arguments), (name, arguments, answered)
    assert reached > len(listed) * 0.8, (format, reached, len(listed))


def payload_of(format: str, name: str, arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments)
    return {
        "openai": {"id": "1", "type": "function", "function": {"name": name, "arguments": text}},
        "openai-responses": {"type": "function_call", "call_id": "1", "name": name, "arguments": text},
        "anthropic": {"type": "tool_use", "id": "1", "name": name, "input": arguments},
        "gemini": {"functionCall": {"id": "1", "name": name, "args": arguments}},
        "mcp": {"name": name, "arguments": arguments},
    }[format]


@pytest.mark.long
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.skipif(not PYTHON.exists(), reason="make tests/peers/llm/.venv with requirements.txt")
async def test_the_vendors_models_take_every_tool(name: str) -> None:
    async with registry_of(name) as registry:
        for spec in registry.specs():
            await registry.describe(spec.id)
        offered = offers(registry, Identity("ann", {SCOPE}))
    for format, made in offered:
        if format == "mcp":  # its own models are here already
            from mcp_types import Tool

            assert len([Tool.model_validate(one) for one in made]) == len(made)
    listed = json.dumps([(format, list(made)) for format, made in offered if format != "mcp"])
    done = subprocess.run(
        [str(PYTHON), "-c", VENDORS], input=listed, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
