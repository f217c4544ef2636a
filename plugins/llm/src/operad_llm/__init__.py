"""Offer operations as tools of language models, in the formats of their APIs, and run the calls of models."""

from operad_llm.calls import run_tool_call
from operad_llm.tools import Format, ToolList, ToolReport, tools

__all__ = ["Format", "ToolList", "ToolReport", "run_tool_call", "tools"]
