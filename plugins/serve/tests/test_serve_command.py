"""What `operad serve` rejects and prints before anything is served."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from operad import ConfigError, InProcessTransport, OperadError, OperationRegistry, Plugins, load_plugins
from operad.plugin import Link, LinkDownError, OnEvent, OnLink, TransportFactory, hookimpl
from operad_calls import CallSettings
from operad_serve import FrontDoor, Plan, ServeOptions
from operad_serve.asgi import Gate
from operad_serve.door import front_door
from operad_serve.door.composition import Composition, Mounted
from operad_serve.listening import listen, parse_address

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
LOCAL = '[sources.x]\ntype = "scanner"\npath = "ops.py"\n'


def operad(folder: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch, config: str = LOCAL) -> Any:
    (folder / "operad.toml").write_text(config)
    (folder / "ops.py").write_text("raise SystemError('sources were loaded')")
    monkeypatch.chdir(folder)
    app = pytest.importorskip("operad_cli.app")
    runner = pytest.importorskip("click.testing").CliRunner()
    return runner.invoke(app.application(), [*arguments], catch_exceptions=True)


ADDRESS = '[serve]\nhttp = "127.0.0.1:0"\n'


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("", "expected an address to serve on: --http"),
        ("[serve]\nhtpp = 1\n", 'did you mean "http"'),
        ("[serve.graphql]\nx = 1\n", "graphql"),
        (f'{ADDRESS}[[serve.tokens]]\ntoken = "${{UNSET_X}}"\nid = "a"\n', "UNSET_X"),
    ],
)
def test_what_cannot_be_served_is_said_before_any_source_is_loaded(
    config: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = operad(tmp_path, "serve", monkeypatch=monkeypatch, config=LOCAL + config)
    assert isinstance(result.exception, OperadError), result.exception
    assert complaint in str(result.exception)


@pytest.mark.parametrize(("arguments", "complaint"), TABLES["tokens of the command"])
def test_tokens_that_cannot_be_used_are_refused_without_quoting_them(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = operad(tmp_path, "serve", *arguments, monkeypatch=monkeypatch)
    message = str(result.exception) + result.output
    assert result.exit_code != 0
    assert complaint in message
    assert "s3cret" not in message


class NotThereYet(InProcessTransport):
    """A transport that refuses so many connections, and the plugin that contributes it."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        if self.refusals:
            self.refusals -= 1
            raise LinkDownError("the hub is down")
        return await super().open(on_event, on_link)

    @hookimpl
    def operad_transports(self) -> list[TransportFactory]:
        return [TransportFactory(("late",), lambda url, **options: self)]

    def door(self, stopped: asyncio.Event) -> FrontDoor:
        plugins = load_plugins(only=["operad-calls"])
        plugins.register(self, "late")
        plan = Plan(options=ServeOptions(), transport="late://x", has_transport=True)
        return FrontDoor(OperationRegistry(plugins), plan, stopped)


async def test_a_worker_waits_for_a_server_that_is_not_there_yet(capsys: pytest.CaptureFixture[str]) -> None:
    bus = NotThereYet(2)
    async with bus.door(asyncio.Event()).open():
        assert bus.refusals == 0
    assert capsys.readouterr().err.count("the hub is down; trying again until it is up") == 1


async def test_a_signal_ends_the_wait_for_a_server_that_is_not_there() -> None:
    stopped = asyncio.Event()
    stopped.set()
    with pytest.raises(LinkDownError, match="the hub is down"):
        async with NotThereYet(3).door(stopped).open():
            pass


class Pigeons:
    """A transport that is not one of operad's, with a call server that keeps its options."""

    def __init__(self) -> None:
        self.options: dict[str, Any] | None = None

    @hookimpl
    def operad_transports(self) -> list[TransportFactory]:
        return [TransportFactory(("pigeon",), lambda url: self)]

    @hookimpl
    def operad_call_server(self, transport: object, options: dict[str, Any]) -> Any:
        self.options = options
        return contextlib.nullcontext()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"mask_errors": True}),
        (
            {"identity": "delegate", "mask_errors": False, "calls": CallSettings(max_concurrent=3, lease=9.0)},
            {"identity": "delegate", "mask_errors": False, "max_concurrent": 3, "lease": 9.0},
        ),
    ],
)
async def test_a_call_server_of_another_plugin_gets_what_was_set_as_plain_values(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    pigeons, plugins = Pigeons(), Plugins()
    plugins.register(pigeons, "pigeons")
    plan = Plan(options=ServeOptions(), transport="pigeon://loft", has_transport=True, **changes)
    async with FrontDoor(OperationRegistry(plugins), plan, asyncio.Event()).open():
        assert pigeons.options == expected


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_front_door_leaves_the_collector_as_it_found_it(frozen: bool) -> None:
    """A program may run the command within itself."""
    plugins, counts = Plugins(), []
    plugins.register(Pigeons(), "pigeons")

    async def load(registry: OperationRegistry) -> int:
        return 0

    def ready() -> None:
        counts.append(gc.get_freeze_count())
        signal.raise_signal(signal.SIGTERM)

    plan = Plan(options=ServeOptions(), transport="pigeon://loft", has_transport=True, on_ready=ready)
    try:
        if frozen:
            gc.freeze()
        assert await front_door.serve(OperationRegistry(plugins), plan, load) == 0
        assert counts[0] > 0
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (7, 5.0, 3.0, 2.0)),
        (["--max-concurrent", "9", "--lease", "60", "--drain", "0"], (9, 60.0, 0.0, 0.0)),
    ],
)
def test_the_bounds_of_calls_are_the_command_lines_else_the_configurations(
    arguments: list[str], expected: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LOCAL + (
        "[calls]\nmax_concurrent = 7\nlease = 5\ndrain_timeout = 3\n"
        '[serve]\ndrain_timeout = 2\n[transport]\nurl = "ws://127.0.0.1:1"\n'
    )
    plans: list[front_door.Plan] = []

    async def serve(registry: OperationRegistry, plan: front_door.Plan, load: object = None) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(front_door, "serve", serve)
    assert operad(tmp_path, "serve", *arguments, monkeypatch=monkeypatch, config=config).exit_code == 0
    (plan,) = plans
    calls = plan.calls
    assert (calls.max_concurrent, calls.lease, calls.drain_timeout, plan.options.drain_timeout) == expected


@pytest.mark.parametrize(("arguments", "complaint"), TABLES["complaints"])
def test_an_option_that_cannot_be_used_is_a_usage_error_that_quotes_no_secret(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = operad(tmp_path, "serve", *arguments, monkeypatch=monkeypatch)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())
    assert "secretvalue" not in result.output


def test_an_address_for_others_needs_somebody_who_asks_who_calls() -> None:
    with (
        pytest.raises(ConfigError, match="callers are not authenticated"),
        listen(("0.0.0.0", 0), is_guarded=False),
    ):
        pass
    with listen(("127.0.0.1", 0), is_guarded=False) as bound:
        bound.listen()
        with (
            pytest.raises(ConfigError, match="cannot listen on"),
            listen(bound.getsockname()[:2], is_guarded=False),
        ):
            pass
    if socket.has_ipv6:
        assert parse_address("[::1]:80") == ("::1", 80)


def test_two_servers_that_want_one_path_are_both_named() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(ConfigError, match='"a" and "b" have the same path /mcp'):
        Composition([Mounted("a", "/mcp", app), Mounted("b", "/mcp", app)], Gate())


async def test_a_server_that_does_not_start_is_named_with_its_reason() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no disk"})

    with pytest.raises(ConfigError, match='the server "a" did not start: no disk'):
        async with Composition([Mounted("a", "/", app)], Gate()).running():
            pass


async def test_a_request_with_two_credentials_reaches_no_application() -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("this request has to be refused")

    async def send(message: Any) -> None:
        sent.append(message)

    both = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer one"), (b"authorization", b"Bearer two")]
    scope = {"type": "http", "method": "GET", "path": "/", "server": ("127.0.0.1", 1), "headers": both}
    await Composition([Mounted("a", "/", app)], Gate())(scope, None, send)
    assert sent[0]["status"] == 400
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b"Authorization is present more than once" in sent[1]["body"]


async def test_lifespans_run_also_for_an_application_that_knows_none() -> None:
    seen = []

    async def full(scope: Any, receive: Any, send: Any) -> None:
        for phase in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{phase}"
            seen.append(phase)
            await send({"type": f"lifespan.{phase}.complete"})

    async def without(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    async with Composition([Mounted("a", "/a", full), Mounted("b", "/b", without)], Gate()).running():
        assert seen == ["startup"]
    assert seen == ["startup", "shutdown"]
