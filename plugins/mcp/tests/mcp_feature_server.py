"""A server of the SDK that uses every feature of a client. Arguments: ``stdio``, or ``http PORT``."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.resolve import ListRoots, Sample
from pydantic import BaseModel

server = MCPServer("features", version="1.2", instructions="Use with care.")


class Total(BaseModel):
    total: int
    pid: int


class Name(BaseModel):
    name: str
    polite: bool = True


@server.tool(title="Add numbers", annotations=types.ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Total:
    """The sum of two numbers."""
    return Total(total=a + b, pid=os.getpid())


@server.tool()
async def steps(context: Context, count: int) -> str:
    for step in range(1, count + 1):
        await context.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
async def talk(context: Context) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in the newest revision, and still in use
        await context.info("a word from the server", logger_name="talker")
    return "said"


@server.tool()
def lose() -> str:
    raise ValueError("a hawk")


@server.tool()
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool()
async def greet(name: Annotated[Name, Resolve(ask_name)]) -> str:
    return f"Hello, {name.name}! {name.polite}"


def ask_model() -> Sample:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="2 + 2?"))
    return Sample([message], max_tokens=10)


@server.tool()
async def think(thought: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
    return f"{thought.model} thinks {thought.content.text}"  # type: ignore[union-attr]  # it was asked for text


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def roots(found: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> list[str]:
    return [str(root.uri) for root in found.roots]


@server.tool()
async def touch(context: Context, uri: str) -> str:
    """Tell that a resource changed."""
    await context.notify_resource_updated(uri)
    return "touched"


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown, "grown")
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "grew"


@server.resource("note://one", mime_type="text/plain")
def note() -> str:
    return "the first note"


@server.resource("note://blob", mime_type="application/octet-stream")
def blob() -> bytes:
    return b"\x00\x01"


@server.resource("note://{folder}/{name}")
def any_note(folder: str, name: str) -> str:
    return f"{name} in {folder}"


@server.prompt()
def review(code: str, style: str = "kind") -> str:
    """Ask for a review."""
    return f"A {style} review of: {code}"


def main(arguments: list[str]) -> Any:
    if arguments[0] == "stdio":
        return server.run_stdio_async()
    return server.run_streamable_http_async(port=int(arguments[1]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
