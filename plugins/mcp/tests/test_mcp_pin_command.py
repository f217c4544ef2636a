"""``pin = true`` of a configuration outlives the process, and ``operad pin`` accepts changes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from operad import CallError, OperationRegistry, load_plugins

pytest.importorskip("operad_cli")  # which has the command line

from operad_cli.app import application
from operad_mcp.command import pin

SERVER = Path(__file__).with_name("mcp_hostile_server.py")


def configured(folder: Path) -> Path:
    path = folder / "operad.toml"
    command = f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SERVER))}]"
    path.write_text(f'[sources.h]\ntype = "mcp"\nmode = "legacy"\npin = true\n{command}\n')
    return path


async def test_a_change_is_held_for_later_processes_until_the_command_accepts_it(tmp_path: Path) -> None:
    path = configured(tmp_path)

    async def fails_with(message: str | None) -> None:
        async with OperationRegistry.from_config(path, load_plugins(only=["mcp"])) as registry:
            assert ("h.echo" in {spec.id for spec in registry.specs()}) is (message is None)
            if message is None:
                await registry.execute("h.echo", {"a": 1})
            else:
                with pytest.raises(CallError, match=message):
                    await registry.execute("h.echo", {"a": 1})

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(
            pin, [*arguments, "-c", str(path)], catch_exceptions=False, standalone_mode=False
        )
        return done.output

    await fails_with(None)
    assert run() == "No tool is held.\n"
    pins = tmp_path / "operad.pins.json"
    kept = json.loads(pins.read_text())
    kept["approved"]["h"]["echo"]["description"] = "before \x1b[31m"
    pins.write_text(json.dumps(kept))
    await fails_with(r"h\.echo. is held.*\(description\).*operad pin --accept h\.echo")

    for arguments in (["describe", "h.echo"], ["call", "h.echo", "a=1"]):
        done = await asyncio.to_thread(CliRunner().invoke, application(), [*arguments, "-c", str(path)])
        assert "is held: its definition changed" in str(done.exception)

    shown = run()
    assert shown.startswith("h.echo: description changed\n  -")
    assert "before" in shown
    assert "\x1b" not in shown
    assert [each["name"] for each in json.loads(run("--json"))] == ["h.echo"]
    assert run("--accept", "h.echo") == "Accepted: h.echo\n"
    assert run() == "No tool is held.\n"
    await fails_with(None)

    kept = json.loads(pins.read_text())
    del kept["approved"]["h"]["echo"]
    pins.write_text(json.dumps(kept))
    await fails_with(r"h\.echo. is held: it is new")
    assert run().startswith("h.echo: new\n  +")
    assert json.loads(run("--json"))[0]["approved"] is None
    assert run("--accept", "h") == "Accepted: h.echo\n"
    await fails_with(None)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ('[sources.h]\ntype = "mcp"\ncommand = "x"\n', [], "expected `pin = true`"),
        ('[sources.h]\ntype = "mcp"\ncommand = "x"\npin = true\n', ["--accept", "h.echo"], "no tool is held"),
    ],
)
def test_what_the_command_cannot_do_is_an_error(
    tmp_path: Path, text: str, arguments: list[str], message: str
) -> None:
    (tmp_path / "operad.toml").write_text(text)
    done = CliRunner().invoke(pin, [*arguments, "-c", str(tmp_path / "operad.toml")])
    assert message in str(done.exception)
