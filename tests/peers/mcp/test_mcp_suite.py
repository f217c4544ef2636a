"""The official conformance suite for clients, through a registry: every scenario that applies."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from operad import OperadError
from tests.kit import output_of
from tests.peers.mcp import conformance_client as client
from tests.peers.mcp.installed import HERE, NODE, SUITE, needs_npm

pytestmark = needs_npm

# Scenarios of which the suite's server refuses the client on purpose: the source cannot be loaded, or says so.
REFUSED = {
    "auth/scope-retry-limit", "auth/resource-mismatch", "auth/iss-supported-missing", "auth/iss-wrong-issuer",
    "auth/iss-unexpected", "auth/iss-normalized", "auth/metadata-issuer-mismatch",
}  # fmt: skip
# What is run, and how many scenarios it has. tools/support_table.py reads this for docs/support.md.
RUNS = {
    "2025-03-26": (("--suite", "backcompat"), 2),
    "2025-11-25": (("--suite", "all", "--spec-version", "2025-11-25"), 19),
    "2026-07-28": (("--suite", "all", "--spec-version", "2026-07-28"), 33),
    "extension client-credentials-basic": (("--scenario", "auth/client-credentials-basic"), 1),
    "extension client-credentials-jwt": (("--scenario", "auth/client-credentials-jwt"), 1),
    "extension enterprise-managed-authorization": (("--scenario", "auth/enterprise-managed-authorization"), 1),
    "extension wif-jwt-bearer": (("--scenario", "auth/wif-jwt-bearer"), 1),
}
"""Left out: the scenarios of skills (SEP-2640) and of tokens that are bound to a key (DPoP), which operad has not."""


@pytest.mark.parametrize("name", list(RUNS))
async def test_every_scenario_of_the_suite_passes(name: str, tmp_path: Path) -> None:
    arguments, count = RUNS[name]
    ended: dict[str, str] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted = json.loads(await reader.readline())
        code = 0
        try:
            await client.run(wanted["url"], wanted["scenario"], wanted["version"], wanted["context"])
            ended[wanted["scenario"]] = "ok"
        except OperadError as error:
            code, ended[wanted["scenario"]] = 1, str(error)
        except Exception as error:
            code, ended[wanted["scenario"]] = 2, f"crashed: {error!r}"
        writer.write(b"%d\n" % code)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        command = f"{sys.executable} -I -S {HERE / 'conformance_shim.py'} {port}"
        timeout = ("--timeout", "120000", "--output-dir", tmp_path)
        output = await output_of(NODE, SUITE, "client", "--command", command, *arguments, *timeout)
    assert len(ended) == count, output
    failed = [
        f"{path.parent.name}: {check['id']}: {check.get('errorMessage')}"
        for path in tmp_path.rglob("checks.json")
        for check in json.loads(path.read_text())
        if check["status"] in ("FAILURE", "WARNING")
    ]
    assert not failed, "\n".join(failed)
    assert {name: end for name, end in ended.items() if (end == "ok") == (name in REFUSED)} == {}
