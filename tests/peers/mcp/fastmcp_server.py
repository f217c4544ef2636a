"""A server written with FastMCP: ``python fastmcp_server.py stdio``, or ``http PORT`` or ``sse PORT``."""

import os
import sys
from typing import Annotated

from fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

mcp = FastMCP("fast", instructions="Ask for whoami first.")


class Sum(BaseModel):
    total: int


@mcp.tool
def whoami() -> str:
    """The process."""
    return str(os.getpid())


@mcp.tool(annotations={"readOnlyHint": True})
def add(a: Annotated[int, Field(ge=0)], b: int = 2) -> Sum:
    """Add numbers."""
    return Sum(total=a + b)


@mcp.tool
async def ask(context: Context) -> str:
    """Ask the user."""
    answer = await context.elicit("What is your name?", response_type=str)
    return f"Hello {getattr(answer, 'data', 'nobody')}"


@mcp.tool
def fail() -> str:
    """Fail."""
    raise ValueError("a hawk")


@mcp.resource("note://{name}")
def note(name: str) -> str:
    return f"note {name}"


@mcp.prompt
def review(code: str) -> str:
    return f"Review {code}"


if sys.argv[1] == "stdio":
    mcp.run()
else:
    mcp.run(transport=sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
