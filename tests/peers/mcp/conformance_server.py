"""The registry that the MCP conformance suite tests as a server: every fixture that the suite asks for.

Usage: ``conformance_server.py PORT`` or ``conformance_server.py stdio``
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from operad import CallError, OperationContext, OperationRegistry, OperationSpec, load_plugins, operation
from operad_mcp import MCPServing, client_of, mcp_envelope, to_mcp

DATA = json.loads(Path(__file__).with_name("conformance.json").read_text(encoding="utf-8"))
"""Contents of results, schemas of questions, prompts and resources, by the names that the suite has for them."""
ASKED = DATA["asked"]
REGISTRY = OperationRegistry(load_plugins(only=["mcp"]))


def strings(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": name} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


def add(name: str, schema: Any = None, kind: str = "", **metadata: Any) -> Any:
    """Return a decorator that registers a handler: of a tool, or of what ``kind`` says."""

    def register(handler: Any) -> Any:
        spec: dict[str, Any] = {"metadata": {"mcp": {"kind": kind, **metadata}}, "type": "query"} if kind else {}
        description = f"The fixture {name}."
        REGISTRY.register(
            OperationSpec(namespace="t", name=name, description=description, input_schema=schema, **spec), handler
        )
        return handler

    return register


def returning(value: Any) -> Any:
    async def handler(input: Any, context: OperationContext) -> Any:
        return value

    return handler


def form(message: str, asked: dict[str, Any]) -> Any:
    async def handler(input: Any, context: OperationContext) -> Any:
        answer = await client_of(context).elicit(input.get("message", message), asked)
        return f"User response: action={answer['action']}, content={json.dumps(answer.get('content'))}"

    return handler


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


simple_text = returning("This is a simple text response for testing.")
add("test_simple_text")(simple_text)
for name, one in DATA["shown"].items():
    add(name, one.get("schema"))(returning(mcp_envelope(one["content"], content=one["content"])))
for name, one in DATA["forms"].items():
    add(name, one.get("schema"))(form(one["message"], one["asked"]))
for name, one in DATA["prompts"].items():
    add(name, kind="prompt")(returning(one["messages"]))
for name, one in DATA["resources"].items():
    add(name, kind="resource", uri=one["uri"], mimeType=one["mimeType"])(returning(one["text"]))
add("static-binary", kind="resource", uri="test://static-binary", mimeType="image/png")(
    returning(base64.b64decode(DATA["image"]))
)


@add("test_error_handling")
async def error(input: Any, context: OperationContext) -> Any:
    raise CallError("EXECUTION_ERROR", "This tool intentionally returns an error for testing")


@add("test_tool_with_progress")
async def progress(input: Any, context: OperationContext) -> Any:
    for step in (0, 50, 100):
        await context.progress(step, 100, f"{step} of 100")
        await asyncio.sleep(0.05)
    return "done"


@add("test_tool_with_logging")
@add("test_logging_tool")
async def logging(input: Any, context: OperationContext) -> Any:
    for step in ("started", "processing", "done"):
        await context.log("info", f"Tool {step}")
        await asyncio.sleep(0.05)
    return "logged"


@add("test_reconnection")
async def reconnection(input: Any, context: OperationContext) -> Any:
    await asyncio.sleep(0.5)  # longer than poll_after
    return "Reconnection test completed successfully"


@add("test_sampling", strings("prompt"))
@add("test_missing_capability")
async def sampling(input: Any, context: OperationContext) -> Any:
    answer = await client_of(context).sample([said(input.get("prompt", "hello"))], max_tokens=100)
    return f"LLM response: {answer['content']['text']}"


@add("test_trigger_tool_change")
async def tool_change(input: Any, context: OperationContext) -> Any:
    return change("test_added_tool")


@add("test_trigger_prompt_change")
async def prompt_change(input: Any, context: OperationContext) -> Any:
    return change("test_added_prompt", "prompt")


def change(name: str, kind: str = "") -> str:
    if f"t.{name}" in REGISTRY:
        REGISTRY.unregister(f"t.{name}")
    else:
        add(name, kind=kind)(simple_text)
    return "changed"


# --- questions that end a request ----------------------------------------------------------------------


async def ask_user(context: OperationContext, key: str, schema: str = "name", message: str = "?") -> Any:
    return await client_of(context).elicit(message, ASKED[schema], key=key)


@add("test_input_required_result_elicitation")
async def ask_name(input: Any, context: OperationContext) -> Any:
    answer = await ask_user(context, "user_name")
    return f"Hello, {answer['content']['name']}!" if answer["action"] == "accept" else "Hello, whoever you are!"


@add("test_input_required_result_sampling")
async def ask_model(input: Any, context: OperationContext) -> Any:
    question = said("What is the capital of France?")
    answer = await client_of(context).sample([question], max_tokens=100, key="capital_question")
    return answer["content"]["text"]


@add("test_input_required_result_list_roots")
async def ask_roots(input: Any, context: OperationContext) -> Any:
    return [dict(root) for root in await client_of(context).roots(key="client_roots")]


@add("test_input_required_result_tampered_state")
@add("test_input_required_result_request_state")
async def ask_state(input: Any, context: OperationContext) -> Any:
    await ask_user(context, "confirm", "confirm")
    return "state-ok"


@add("test_input_required_result_multi_round")
async def ask_twice(input: Any, context: OperationContext) -> Any:
    first = await ask_user(context, "step1")
    second = await ask_user(context, "step2", "color")
    return f"{first.get('content')} {second.get('content')}"


async def ask_greeting(context: OperationContext) -> Any:
    return await client_of(context).sample([said("Say hello.")], max_tokens=50, key="greeting")


@add("test_input_required_result_multiple_inputs")
async def ask_together(input: Any, context: OperationContext) -> Any:
    roots = client_of(context).roots(key="client_roots")
    answers = await asyncio.gather(ask_user(context, "user_name"), ask_greeting(context), roots)
    return json.dumps([dict(answer) if isinstance(answer, dict) else list(answer) for answer in answers])


@add("test_input_required_result_capabilities")
async def ask_what_is_declared(input: Any, context: OperationContext) -> Any:
    questions = []
    if "elicitation" in client_of(context).capabilities:
        questions.append(ask_user(context, "user_name"))
    if "sampling" in client_of(context).capabilities:
        questions.append(ask_greeting(context))
    await asyncio.gather(*questions)
    return "asked"


# --- resources and prompts -----------------------------------------------------------------------------

URI = {"uriTemplate": "test://template/{id}/data", "mimeType": "application/json"}


@add("template", strings("id"), "resourceTemplate", **URI)
async def template(input: Any, context: OperationContext) -> Any:
    return {"id": input["id"], "templateTest": True, "data": f"Data for ID: {input['id']}"}


@add("test_prompt_with_arguments", strings("arg1", "arg2"), "prompt")
async def prompt_with_arguments(input: Any, context: OperationContext) -> Any:
    return f"Prompt with arguments: arg1='{input['arg1']}', arg2='{input['arg2']}'"


@add("test_prompt_with_embedded_resource", strings("resourceUri"), "prompt")
async def prompt_with_resource(input: Any, context: OperationContext) -> Any:
    embedded = {"uri": input["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content."}
    content = {"type": "resource", "resource": embedded}
    return [{"role": "user", "content": content}, said("Please process the embedded resource above.")]


@add("test_input_required_result_prompt", None, "prompt")
async def prompt_that_asks(input: Any, context: OperationContext) -> Any:
    answer = await ask_user(context, "user_context", "context")
    return f"Context: {answer.get('content')}"


@operation(namespace="t", type="query")
async def add_numbers(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


REGISTRY.register(add_numbers)


def serving() -> MCPServing:
    """The registry of the fixtures, served."""
    return to_mcp(REGISTRY, name="fixtures", names="name", tools="all", resumable=True, poll_after=0.3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(serving().stdio())
    else:
        import uvicorn

        uvicorn.run(serving().asgi(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
