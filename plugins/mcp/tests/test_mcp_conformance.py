"""operad-mcp against the conformance kit: a server of the SDK in this process, a hostile program, envelopes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psutil

from operad import OperationRegistry
from operad_mcp import mcp_envelope
from operad_testing import (
    EnvelopeKindCapabilities,
    EnvelopeKindConformance,
    Example,
    PluginConformance,
    SourceCapabilities,
    SourceConformance,
)
from plugins.mcp.tests.peers import feature_server, program

TEXT = "x" * 2_000_000


class TestMCP(SourceConformance):
    source = "mcp"
    capabilities = SourceCapabilities(subscriptions=True, error_envelopes=True, changes=True, envelope_kind="mcp")
    example = Example("sleep", {"seconds": 0}, data={"result": "slept"})
    invalid = Example("add", {"a": "one", "b": 2})
    stream = Example("resources.subscribe", {"uri": "note://one"}, data=[{"uri": "note://one"}])
    failing = Example("resources.read", {"uri": "note://two"}, error="EXECUTION_ERROR")
    error_envelope = Example("lose")
    slow = Example("sleep", {"seconds": 60})
    broken = ({"server": None}, {"server": None, "command": "/no/such/program"}, {"timeout": "long"})

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"server": feature_server(), "mode": "2026-07-28"}

    async def change(self, registry: OperationRegistry) -> None:
        while "conformance.grown" not in registry:  # changes come only once the server has heard the listener
            await registry.execute("conformance.grow")
            await asyncio.sleep(0.1)

    async def stir(self, registry: OperationRegistry) -> None:
        while True:
            await asyncio.sleep(0.1)
            await registry.execute("conformance.touch", {"uri": "note://one"})


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
        # The kit would rightly refuse the tool bad_schema.
        yield program(env={"TOKEN": "hush"}, shutdown_timeout=0.5, exclude=["bad_schema"])

    async def restart(self, registry: OperationRegistry) -> None:
        pid = (await registry.execute("conformance.pid")).data[0]
        psutil.Process(pid).kill()


class TestMCPEnvelope(EnvelopeKindConformance):
    kind_source = "mcp"
    capabilities = EnvelopeKindCapabilities(errors=True)
    examples = (
        mcp_envelope(None).meta,
        mcp_envelope(
            1, content=[{"type": "text", "text": "one"}], structured_content=None, meta={"a": 1},
            protocol_version="2025-11-25", server={"name": "loft", "version": "1"},
        ).meta,
    )  # fmt: skip
    error_examples = (mcp_envelope(None, is_error=True, content=[{"type": "text", "text": "no"}]).meta,)


class TestPlugin(PluginConformance):
    distribution = "operad-mcp"
    contributes = {"sources": ["mcp"], "envelope_kinds": ["mcp"], "servers": ["mcp"], "hooks": ["operad_commands"]}
    light = ("msgspec", "typing_extensions")  # for UNSET in the meta; operad itself needs it for schemas of kinds
