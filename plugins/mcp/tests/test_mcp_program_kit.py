"""operad-mcp against the conformance kit, with a program that does what no server should."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from operad import OperationRegistry
from operad_testing import Example, SourceCapabilities, SourceConformance

HOSTILE = Path(__file__).with_name("mcp_hostile_server.py")
TEXT = "x" * 2_000_000


class TestMCPProgram(SourceConformance):
    source = "mcp"
    capabilities = SourceCapabilities(error_envelopes=True, restarts=True, envelope_kind="mcp")
    example = Example("echo", {"a": 1}, data={"a": 1})
    invalid = Example("strict", {"a": "one"})
    failing = Example("error", error="EXECUTION_ERROR")
    error_envelope = Example("failed")
    slow = Example("hang")
    large = Example("echo", {"a": TEXT}, data={"a": TEXT})
    mismatched = Example("wrong_structured", data={"n": "not a number"})
    broken = ({"command": "/no/such/program"}, {"args": 5})
    secrets = ("hush",)

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {
            "command": sys.executable,
            "args": [str(HOSTILE)],
            "mode": "legacy",
            "env": {"TOKEN": "hush"},
            "shutdown_timeout": 0.5,
            "exclude": ["bad_schema"],  # which the kit would rightly refuse
        }

    async def restart(self, registry: OperationRegistry) -> None:
        pid = (await registry.execute("conformance.pid")).data[0]
        psutil.Process(pid).kill()
