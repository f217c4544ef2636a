"""The registry that the MCP conformance suite tests as a server: every fixture that the suite asks for.

Usage: ``conformance_server.py PORT`` or ``conformance_server.py stdio``
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from operad import CallError, OperationContext, OperationRegistry, OperationSpec, load_plugins, operation
from operad_mcp import MCPServing, client_of, mcp_envelope, to_mcp

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
RESOURCE = {
    "type": "resource",
    "resource": {"uri": "test://embedded", "mimeType": "text/plain", "text": "This is an embedded resource."},
}
OBJECT: dict[str, Any] = {"type": "object"}


def strings(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": name} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


class Fixture:
    """The operations, registered by the decorator `add`."""

    def __init__(self) -> None:
        self.registry = OperationRegistry(load_plugins(only=["mcp"]))

    def add(self, name: str, schema: Any = None, **spec: Any) -> Any:
        def register(handler: Any) -> Any:
            description = spec.pop("description", f"The fixture {name}.")
            made = OperationSpec(namespace="t", name=name, description=description, input_schema=schema, **spec)
            self.registry.register(made, handler)
            return handler

        return register

    def kind(self, kind: str, **metadata: Any) -> dict[str, Any]:
        return {"mcp": {"kind": kind, **metadata}}


fixture = Fixture()
add = fixture.add


@add("test_simple_text")
async def simple_text(input: Any, context: OperationContext) -> Any:
    return "This is a simple text response for testing."


def blocks(*content: Any) -> Any:
    async def handler(input: Any, context: OperationContext) -> Any:
        return mcp_envelope(list(content), content=list(content))

    return handler


add("test_image_content")(blocks(IMAGE))
add("test_audio_content")(blocks(AUDIO))
add("test_embedded_resource")(blocks(RESOURCE))
add("test_multiple_content_types")(blocks(TEXT, IMAGE, RESOURCE))


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
async def sampling(input: Any, context: OperationContext) -> Any:
    message = {"role": "user", "content": {"type": "text", "text": input["prompt"]}}
    answer = await client_of(context).sample([message], max_tokens=100)
    return f"LLM response: {answer['content']['text']}"


@add("test_missing_capability")
async def missing_capability(input: Any, context: OperationContext) -> Any:
    return await sampling({"prompt": "hello"}, context)


def form(message: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> Any:
    async def handler(input: Any, context: OperationContext) -> Any:
        schema = {"type": "object", "properties": properties, "required": list(required)}
        answer = await client_of(context).elicit(input.get("message", message), schema)
        return f"User response: action={answer['action']}, content={json.dumps(answer.get('content'))}"

    return handler


TEXTS = {"username": {"type": "string"}, "email": {"type": "string"}}
add("test_elicitation", strings("message"))(form("", TEXTS, ("username", "email")))
add("test_streaming_elicitation")(form("Who are you?", TEXTS))
add("test_elicitation_sep1034_defaults")(
    form(
        "Check the defaults",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    )
)
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
PLAIN = ["option1", "option2", "option3"]
add("test_elicitation_sep1330_enums")(
    form(
        "Choose",
        {
            "untitledSingle": {"type": "string", "enum": PLAIN},
            "titledSingle": {"type": "string", "oneOf": TITLED},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
            "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
        },
    )
)
add(
    "json_schema_2020_12_tool",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)(blocks(TEXT))
add(
    "test_custom_header",
    {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
)(blocks(TEXT))


@add("test_trigger_tool_change")
async def tool_change(input: Any, context: OperationContext) -> Any:
    change("test_added_tool", {})
    return "changed"


@add("test_trigger_prompt_change")
async def prompt_change(input: Any, context: OperationContext) -> Any:
    change("test_added_prompt", fixture.kind("prompt"))
    return "changed"


def change(name: str, metadata: Any) -> None:
    if f"t.{name}" in fixture.registry:
        fixture.registry.unregister(f"t.{name}")
    else:
        add(name, metadata=metadata)(simple_text)


# --- questions that end a request ----------------------------------------------------------------------


@add("test_input_required_result_elicitation")
async def ask_name(input: Any, context: OperationContext) -> Any:
    answer = await client_of(context).elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer['content']['name']}!" if answer["action"] == "accept" else "Hello, whoever you are!"


@add("test_input_required_result_sampling")
async def ask_model(input: Any, context: OperationContext) -> Any:
    message = {"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}
    answer = await client_of(context).sample([message], max_tokens=100, key="capital_question")
    return answer["content"]["text"]


@add("test_input_required_result_list_roots")
async def ask_roots(input: Any, context: OperationContext) -> Any:
    return [dict(root) for root in await client_of(context).roots(key="client_roots")]


CONFIRM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


@add("test_input_required_result_tampered_state")
@add("test_input_required_result_request_state")
async def ask_state(input: Any, context: OperationContext) -> Any:
    await client_of(context).elicit("Go on?", CONFIRM, key="confirm")
    return "state-ok"


@add("test_input_required_result_multi_round")
async def ask_twice(input: Any, context: OperationContext) -> Any:
    first = await client_of(context).elicit("What is your name?", NAME, key="step1")
    color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    second = await client_of(context).elicit("Which color?", color, key="step2")
    return f"{first.get('content')} {second.get('content')}"


async def ask_greeting(context: OperationContext) -> Any:
    message = {"role": "user", "content": {"type": "text", "text": "Say hello."}}
    return await client_of(context).sample([message], max_tokens=50, key="greeting")


@add("test_input_required_result_multiple_inputs")
async def ask_together(input: Any, context: OperationContext) -> Any:
    answers = await asyncio.gather(
        client_of(context).elicit("What is your name?", NAME, key="user_name"),
        ask_greeting(context),
        client_of(context).roots(key="client_roots"),
    )
    return json.dumps([dict(answer) if isinstance(answer, dict) else list(answer) for answer in answers])


@add("test_input_required_result_capabilities")
async def ask_what_is_declared(input: Any, context: OperationContext) -> Any:
    questions = []
    if "elicitation" in client_of(context).capabilities:
        questions.append(client_of(context).elicit("What is your name?", NAME, key="user_name"))
    if "sampling" in client_of(context).capabilities:
        questions.append(ask_greeting(context))
    await asyncio.gather(*questions)
    return "asked"


# --- resources and prompts -----------------------------------------------------------------------------


def resource(name: str, uri: str, mime: str) -> Any:
    return add(name, metadata=fixture.kind("resource", uri=uri, mimeType=mime), type="query")


@resource("static-text", "test://static-text", "text/plain")
async def static_text(input: Any, context: OperationContext) -> Any:
    return "This is the content of the static text resource."


@resource("static-binary", "test://static-binary", "image/png")
async def static_binary(input: Any, context: OperationContext) -> Any:
    import base64

    return base64.b64decode(PNG)


@resource("watched-resource", "test://watched-resource", "text/plain")
async def watched(input: Any, context: OperationContext) -> Any:
    return "watched"


@add(
    "template",
    strings("id"),
    type="query",
    metadata=fixture.kind(
        "resourceTemplate", uriTemplate="test://template/{id}/data", mimeType="application/json"
    ),
)
async def template(input: Any, context: OperationContext) -> Any:
    return {"id": input["id"], "templateTest": True, "data": f"Data for ID: {input['id']}"}


def prompt(name: str, schema: Any = None) -> Any:
    return add(name, schema, metadata=fixture.kind("prompt"), type="query")


@prompt("test_simple_prompt")
async def simple_prompt(input: Any, context: OperationContext) -> Any:
    return "This is a simple prompt for testing."


@prompt("test_prompt_with_arguments", strings("arg1", "arg2"))
async def prompt_with_arguments(input: Any, context: OperationContext) -> Any:
    return f"Prompt with arguments: arg1='{input['arg1']}', arg2='{input['arg2']}'"


@prompt("test_prompt_with_embedded_resource", strings("resourceUri"))
async def prompt_with_resource(input: Any, context: OperationContext) -> Any:
    embedded = {"uri": input["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content."}
    return [
        {"role": "user", "content": {"type": "resource", "resource": embedded}},
        {"role": "user", "content": {"type": "text", "text": "Please process the embedded resource above."}},
    ]


@prompt("test_prompt_with_image")
async def prompt_with_image(input: Any, context: OperationContext) -> Any:
    return [
        {"role": "user", "content": IMAGE},
        {"role": "user", "content": {"type": "text", "text": "Please analyze the image above."}},
    ]


@prompt("test_input_required_result_prompt")
async def prompt_that_asks(input: Any, context: OperationContext) -> Any:
    schema = {"type": "object", "properties": {"context": {"type": "string"}}}
    answer = await client_of(context).elicit("In which context?", schema, key="user_context")
    return f"Context: {answer.get('content')}"


@operation(namespace="t", type="query")
async def add_numbers(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


fixture.registry.register(add_numbers)


def serving() -> MCPServing:
    """The registry of the fixtures, served."""
    return to_mcp(fixture.registry, name="fixtures", names="name", tools="all", resumable=True, poll_after=0.3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(serving().stdio())
    else:
        import uvicorn

        uvicorn.run(serving().asgi(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
