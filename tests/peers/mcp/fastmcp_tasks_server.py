"""A server written with FastMCP whose tools run as tasks (2026-07-28): ``stdio``, or ``http PORT``."""

import asyncio
import sys
from datetime import timedelta

from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = FastMCP("slow")
mcp.add_extension(TasksExtension())
runs: list[str] = []
SOON = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=50))
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@mcp.tool(task=SOON)
async def crunch(text: str, seconds: float = 0.2) -> dict[str, str]:
    """Work for a while."""
    runs.append(text)
    await asyncio.sleep(seconds)
    return {"text": text.upper()}


@mcp.tool(task=SOON)
async def ask(context: Context) -> str | InputRequiredResult:
    """Ask the user on the way."""
    answers = context.input_responses or {}
    if "name" not in answers:
        params = ElicitRequestFormParams(message="What is your name?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)})
    return f"Hello {answers['name'].content['name']}"


@mcp.tool(task=SOON)
async def fail() -> str:
    """Fail."""
    raise ValueError("a hawk")


@mcp.tool
def ran() -> list[str]:
    """What was worked on."""
    return runs


if sys.argv[1] == "stdio":
    mcp.run(show_banner=False)
else:
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
