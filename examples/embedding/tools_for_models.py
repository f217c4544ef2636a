# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "operad-llm"]
# ///
"""The loop of an agent over the operations of a registry. Guide: docs/llm.md.

`model` replaces the request to your model; all other code is as in an application. (With OpenAI's SDK it is
``client.chat.completions.create(model=…, messages=messages, tools=offered)``.)
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from operad import AccessControl, Identity, OperationContext, OperationRegistry, operation
from operad_llm import run_tool_call, tools

Json = dict[str, Any]


@operation(namespace="shop", type="query")
async def price(article: str, currency: str = "EUR") -> str:
    """Return the price of an article."""
    return f"{article}: 12 {currency}"


@operation(namespace="shop", access_control=AccessControl(required_scopes=("manager",)))
async def discount(article: str, percent: int) -> str:
    """Make an article cheaper."""
    return f"{article} is {percent} % off"


def model(messages: list[Json], offered: list[Json]) -> Json:
    """Imitate a model: request a price, first with a mistake, then return the result as text."""
    answers = [message["content"] for message in messages if message["role"] == "tool"]
    arguments = ['{"article": 3}', '{"article": "hat", "currency": null}']
    if len(answers) == len(arguments):
        return {"role": "assistant", "content": answers[-1]}
    call = {"name": offered[0]["function"]["name"], "arguments": arguments[len(answers)]}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{len(answers)}", "type": "function", "function": call}],
    }


async def answer(registry: OperationRegistry, question: str, user: Identity, steps: int = 10) -> str:
    """Return the last message of the model. It may call only operations that the user may call."""
    offered = tools(registry, "openai", identity=user, strict=True, query=question, max_tools=20)
    messages: list[Json] = [{"role": "user", "content": question}]
    for _ in range(steps):
        message = model(messages, offered)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        messages += [
            await run_tool_call(registry, call, offered=offered, context=OperationContext(identity=user))
            for call in message["tool_calls"]
        ]
    return "I could not find out."


async def main() -> None:
    """Show the tools of two users, and answer a question."""
    registry = OperationRegistry()
    registry.register(price)
    registry.register(discount)
    customer, manager = Identity("ann"), Identity("bob", ("manager",))
    print(sorted(tools(registry, identity=customer).names), sorted(tools(registry, identity=manager).names))
    print(await answer(registry, "What is the price of a hat?", customer))
    print(json.dumps(tools(registry, "anthropic", identity=customer)[0]["input_schema"]["required"]))


if __name__ == "__main__":
    asyncio.run(main())
