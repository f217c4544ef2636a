"""Tools in the vendors' own models, and in agent libraries: programs of an environment that has those."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = Path(__file__).parent / ".venv/bin/python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="make tests/peers/llm/.venv with requirements.txt")

MODELS = """
import asyncio
from anthropic.types import ToolResultBlockParam, ToolUseBlock
from google.genai import types as gemini
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionToolMessageParam
from openai.types.responses import ResponseFunctionToolCall
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter
from operad import OperationRegistry, operation
from operad_llm import run_tool_call

@operation(namespace="m")
async def add(a: int, b: int | None = None) -> int:
    "The sum."
    return a + (b or 0)

registry = OperationRegistry()
registry.register(add)

async def main():
    text = '{"a": 2, "b": 3}'
    chat = ChatCompletionMessageFunctionToolCall(id="c", type="function", function={"name": "m_add", "arguments": text})
    answer = await run_tool_call(registry, chat)
    assert TypeAdapter(ChatCompletionToolMessageParam).validate_python(answer)["content"] == "5"
    response = ResponseFunctionToolCall(call_id="c", name="m_add", arguments=text, type="function_call")
    answer = await run_tool_call(registry, response)
    assert TypeAdapter(FunctionCallOutput).validate_python(answer)["output"] == "5"
    use = ToolUseBlock(id="c", name="m_add", input={"a": 2, "b": 3}, type="tool_use")
    answer = await run_tool_call(registry, use)
    assert TypeAdapter(ToolResultBlockParam).validate_python(answer)["content"] == "5"
    call = gemini.FunctionCall(id="c", name="m_add", args={"a": 2, "b": 3})
    answer = await run_tool_call(registry, call)
    assert gemini.Part.model_validate(answer).function_response.response == {"output": 5}

asyncio.run(main())
print("accepted")
"""


def run(*command: str) -> str:
    path = os.pathsep.join(str(ROOT / folder) for folder in ("core/src", "schema/src", "plugins/llm/src"))
    done = subprocess.run(
        [str(PYTHON), *command], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_vendors_models_accept_results_and_their_calls_are_understood() -> None:
    assert run("-c", MODELS) == "accepted\n"


def test_the_example_for_langchain_runs() -> None:
    said = run(str(ROOT / "examples/llm/langchain_tools.py"))
    assert "demo_add" in said
    assert "content='5'" in said
    assert "expected integer" in said


@pytest.mark.long
def test_the_example_for_pydantic_ai_runs() -> None:
    assert "demo_add" in run(str(ROOT / "examples/llm/pydantic_ai_tools.py"))
