"""What `operad serve` rejects and prints before anything is served."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from operad import (
    AccessControl,
    ConfigError,
    InProcessTransport,
    OperadError,
    OperationRegistry,
    OperationSpec,
    Plugins,
    load_plugins,
)
from operad.plugin import Link, LinkDownError, OnEvent, OnLink, Server, TransportFactory, hookimpl, record
from operad_auth import TokenRecord
from operad_calls import CallSettings
from operad_serve import FrontDoor, Plan, ServeOptions
from operad_serve.asgi import ADMISSION, Exchange, Gate
from operad_serve.door import front_door
from operad_serve.door.composition import Composition, Mounted
from operad_serve.door.options import open_operations, problems
from operad_serve.door.plan import plan_of
from operad_serve.door.transport import transport_of
from operad_serve.listening import listen, parse_address
from plugins.serve.tests.front_door import asked

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


def test_files_of_the_command_line_start_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[front_door.Plan] = []

    async def serve(registry: OperationRegistry, plan: front_door.Plan, load: object) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(front_door, "serve", serve)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "operad.toml").write_text("")
    (tmp_path / "tokens.json").write_text('{"joe-token-123456": "joe"}')
    words = ("--tokens", "tokens.json", "--http", "127.0.0.1:0", "--token", "ann=ann-token-123456")
    more = ("--config", "conf/operad.toml", "--access-log", "--strict", "--keep-alive", "7", "--identity", "peer")
    operad(tmp_path, "serve", *words, *more, monkeypatch=monkeypatch)
    operad(tmp_path, "serve", *words[2:4], "--openapi", "x.json", monkeypatch=monkeypatch)
    plan, single = plans
    options = plan.options
    assert options.tokens_file == str(tmp_path / "tokens.json")
    assert (options.access_log, options.strict, options.keep_alive) == (True, True, 7.0)
    assert [(record.id, record.token) for record in options.tokens] == [("ann", "ann-token-123456")]
    assert (plan.http, plan.identity, plan.base_dir.name) == (("127.0.0.1", 0), "peer", "conf")
    assert (plan.servers, plan.mask_errors) == ({}, True)
    assert single.servers == {"mcp": {"names": "name"}}
    assert single.options.tokens_file is None


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


@record
class StandardOptions:
    """The options of a server on standard streams, and of an application."""

    title: str | None = None
    timeout: float = 1.0
    max_body: int = 1


class Standard:
    """A plugin whose server ``mcp`` writes to standard output, and has an application with a lifespan."""

    def __init__(self) -> None:
        self.configs: list[Any] = []
        self.ended = asyncio.Event()
        self.is_cancelled = False

    @hookimpl
    def operad_servers(self) -> list[Server]:
        return [Server("mcp", self.serve, StandardOptions, self.app, "/mcp")]

    async def serve(self, registry: OperationRegistry, config: Any) -> None:
        self.configs.append(config)
        print("not for the host")
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise

    def app(self, registry: OperationRegistry, config: Any) -> Any:
        self.configs.append(config)
        return lambda scope, receive, send: receive()

    def registry(self) -> OperationRegistry:
        plugins = Plugins()
        plugins.register(self, "standard")
        return OperationRegistry(plugins)


async def echo(input: Any, context: object) -> Any:
    return input


async def nothing(registry: OperationRegistry) -> int:
    return 0


@pytest.mark.parametrize("others", [{}, {"http": ("127.0.0.1", 0)}])
async def test_mcp_on_standard_streams_ends_the_command_if_it_is_served_alone(
    others: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    standard = Standard()
    ready: list[str] = []

    def end() -> None:
        ready.append("once")
        standard.ended.set()
        if others:
            asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGTERM)

    options = ServeOptions(title="Shop", max_body=7)
    plan = Plan(options=options, is_stdio=True, servers={"mcp": {"timeout": 9.0}}, on_ready=end, **others)
    assert await front_door.serve(standard.registry(), plan, nothing) == 0
    assert ready == ["once"]
    assert set(standard.configs) == {StandardOptions("Shop", 9.0, 7)}
    out, err = capsys.readouterr()
    assert out == ""
    assert "not for the host" in err
    assert "serving 0 operations over MCP on standard streams" in err
    assert ("draining" in err) is bool(others)
    assert ("  MCP            http://127.0.0.1:" in err) is bool(others)
    assert "OpenAPI" not in err


async def test_a_signal_ends_mcp_on_standard_streams() -> None:
    standard = Standard()
    plan = Plan(options=ServeOptions(timeout=5.0), is_stdio=True)
    async with FrontDoor(standard.registry(), plan, asyncio.Event()).open() as ended:
        while not standard.configs:
            await asyncio.sleep(0)
        assert not ended.is_set()
    assert standard.is_cancelled
    assert standard.configs == [StandardOptions(None, 5.0, 4 * 1024 * 1024)]


@pytest.mark.parametrize(
    ("tokens", "anonymous", "explorer"), [(False, False, True), (True, False, False), (True, True, True)]
)
async def test_the_greeting_names_each_address_and_what_requires_credentials(
    registry: OperationRegistry, capsys: pytest.CaptureFixture[str], tokens: bool, anonymous: bool, explorer: bool
) -> None:
    records = [TokenRecord(token="joe-token-123456", id="joe")] if tokens else []
    options = ServeOptions(tokens=records, anonymous=anonymous, explorer=explorer)
    stop = {"on_ready": lambda: signal.raise_signal(signal.SIGTERM)}
    plan = Plan(options=options, http=("127.0.0.1", 0), health=("127.0.0.1", 0), **stop)
    made = OperationRegistry(registry.plugins)
    for spec in registry.specs():
        made.register(spec, echo)
    assert await front_door.serve(made, plan, nothing) == 0
    lines = capsys.readouterr().err.splitlines()
    base = re.match(r"serving 12 operations on (http://127.0.0.1:\d+); press Ctrl-C to stop", lines[0])
    assert base is not None
    words = {"explorer": base[1] + "/", "OpenAPI": base[1] + "/openapi.json", "metrics": base[1] + "/metrics"}
    shown = dict(line.split(None, 1) for line in lines[1:-1])
    assert re.fullmatch(r"http://127.0.0.1:\d+/health", shown.pop("health"))
    needed = shown.pop("credentials")
    assert shown == {name: url for name, url in words.items() if explorer or name != "explorer"}
    assert lines[-1] == "draining"
    if tokens and not anonymous:
        assert needed == "every operation requires them"
    else:
        assert (
            needed == f"11 of 12 operations require none ({'anonymous = true' if tokens else 'no authenticator'})"
        )


@pytest.mark.parametrize(("strict", "served"), [(True, False), (False, True)])
async def test_with_strict_nothing_is_served_if_a_source_failed(
    strict: bool, served: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def load(registry: OperationRegistry) -> int:
        return 4

    standard = Standard()
    standard.ended.set()
    plan = Plan(options=ServeOptions(strict=strict), is_stdio=True)
    assert await front_door.serve(standard.registry(), plan, load) == 4
    assert bool(standard.configs) is served
    assert ("a source failed and strict is set" in capsys.readouterr().err) is strict


async def test_the_address_for_health_serves_nothing_else_and_says_when_the_server_drains() -> None:
    standard, seen = Standard(), list[Any]()

    class Application:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            raise NotImplementedError

        async def drain(self, timeout: float) -> None:
            seen.append((timeout, await asked("/health")))

    async def asked(path: str) -> tuple[int, str]:
        async with session.get(str(door.health_url).replace("/health", path)) as response:
            return response.status, await response.text()

    standard.app = lambda registry, config: Application()  # type: ignore[method-assign]  # one that drains
    local = ("127.0.0.1", 0)
    plan = Plan(options=ServeOptions(drain_timeout=7.0), http=local, health=local)
    door = FrontDoor(standard.registry(), plan, asyncio.Event())
    async with aiohttp.ClientSession() as session, door.open():
        assert await asked("/health") == (200, '{"status":"ok","ready":true}')
        status, body = await asked("/")
        assert (status, "expected /health" in body) == (404, True)
        assert (door.has_openapi, door.has_explorer, door.has_mcp) == (False, False, True)
    assert seen == [(7.0, (503, '{"status":"draining","ready":false}'))]


async def test_without_a_server_for_http_there_is_nothing_to_serve() -> None:
    plan, standard = Plan(options=ServeOptions(), http=("127.0.0.1", 0)), Standard()
    standard.app = None  # type: ignore[method-assign, assignment]  # a server without an application
    with pytest.raises(ConfigError, match="expected a plugin that serves over HTTP, got none"):
        async with FrontDoor(standard.registry(), plan, asyncio.Event()).open():
            pass


def test_a_command_waits_for_cancelled_tasks_and_not_for_those_that_ignore_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[str] = []

    async def task(stubborn: bool) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if stubborn:
                await asyncio.sleep(60)
            ended.append("a task")
            raise

    async def serving(stubborn: bool, error: OperadError | None) -> int:
        kept.append(asyncio.create_task(task(stubborn)))
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return 5

    def leave(code: int) -> None:
        raise SystemExit(code)

    kept: list[Any] = []
    assert front_door.run(serving(False, None)) == 5
    with pytest.raises(ConfigError, match="no disk"):
        front_door.run(serving(False, ConfigError("no disk")))
    assert ended == ["a task"] * 2
    monkeypatch.setattr(front_door, "_LAST_WAIT", 0.01)
    monkeypatch.setattr("os._exit", leave)  # it would end the tests
    with pytest.raises(SystemExit) as caught:
        front_door.run(serving(True, ConfigError("no disk")))
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert "error: no disk\nerror: a call ignored its cancellation" in err


SERVED = '[serve]\nhttp = "0.0.0.0:1"\n'
TOKEN = '[[serve.tokens]]\ntoken = "joe-token-123456"\nid = "joe"\n'


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ('[serve]\nhttp = "127.0.0.1:1"\nhealth = "0.0.0.0:1"\n', []),
        ('[serve]\nhttp = "unix:o.sock"\n', []),
        ("[serve.openapi]\ntimeout = 3\n", []),
        (SERVED + TOKEN, []),
        (SERVED, [("serve", "other machines can connect to 0.0.0.0", 2)]),
        ('[serve]\nhttp = "8000"\n', [("serve", "expected HOST:PORT", 2)]),
        ('[serve]\n\nhealth = "8000"\n', [("serve", "expected HOST:PORT", 3)]),
        ('[serve]\nkey = "key.pem"\n', [("serve", "key: expected cert as well", 2)]),
        ('[serve]\nmax_body = 1\ncert = "no.pem"\n', [("serve", "expected a certificate", 3)]),
        ('[serve]\nmax_body = 1\nauthenticate = "no.py:x"\n', [("serve", "authenticate", 3)]),
        ('[serve]\nmax_body = 1\ntokens_file = "no.toml"\n', [("serve", "no.toml", 3)]),
        ("[serve]\n" + TOKEN + TOKEN, [("serve", "token 2", 2)]),
        ("[serve.openapi]\ntimeout = 0\n", [("serve.openapi", "timeout", 1)]),
        ("[serve.openapi]\nstdio = true\n", [("serve.openapi", "stdio", 1)]),
        ("[serve]\n[serve.graphql]\nx = 1\n", [("serve.graphql", "graphql", 2)]),
    ],
)
def test_each_table_that_would_be_rejected_is_named_with_its_place(
    config: str, found: list[tuple[str, str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "operad.toml").write_text(config)
    registry = OperationRegistry.from_config(tmp_path / "operad.toml", load_plugins(only=["serve"]))
    named = list(problems(registry))
    assert [table for table, _ in named] == [table for table, _, _ in found]
    for (_, error), (_, text, line) in zip(named, found, strict=True):
        assert text in str(error)
        assert f"operad.toml:{line}" in str(error)


@pytest.mark.parametrize(
    ("config", "scopes", "expected"),
    [
        ("", (), None),
        (SERVED, (), "1 of 1 operations require none (no authenticator)"),
        (SERVED, ("x",), None),
        (SERVED + TOKEN, (), None),
        (SERVED + "anonymous = true\n" + TOKEN, (), "1 of 1 operations require none (anonymous = true)"),
        (
            SERVED + TOKEN + "[serve.openapi]\nanonymous = true\n",
            (),
            "1 of 1 operations require none (anonymous = true)",
        ),
        (SERVED + 'authenticate = "no.py:x"\n', (), None),
    ],
)
def test_operations_that_every_caller_may_call_are_counted(
    config: str, scopes: tuple[str, ...], expected: str | None, tmp_path: Path
) -> None:
    (tmp_path / "operad.toml").write_text(config)
    registry = OperationRegistry.from_config(tmp_path / "operad.toml", load_plugins(only=["serve"]))
    spec = OperationSpec(namespace="a", name="n", access_control=AccessControl(required_scopes=scopes))
    registry.register(spec, echo)
    assert open_operations(registry) == expected


@pytest.mark.parametrize(
    ("config", "options", "expected"),
    [
        ("", {}, "expected an address to serve on"),
        ("", {"default_http": ("127.0.0.1", 8000)}, {"http": ("127.0.0.1", 8000)}),
        ("", {"mcp": "stdio", "default_http": ("127.0.0.1", 8000)}, {"is_stdio": True, "http": None}),
        ('[serve]\nmcp = "stdio"\n', {"default_http": ("127.0.0.1", 1)}, {"is_stdio": True, "http": None}),
        ("[serve.mcp]\nstdio = true\n", {}, {"is_stdio": True, "http": None}),
        ("[serve.mcp]\nstdio = false\n", {}, "expected an address to serve on"),
        ('[serve]\nhttp = "127.0.0.1:1"\nmcp = "stdio"\n', {}, {"is_stdio": True, "http": ("127.0.0.1", 1)}),
        ('[serve]\nhttp = "127.0.0.1:1"\n', {"mcp": "stdio"}, {"is_stdio": True, "http": None}),
        ('[serve]\nmcp = "stdio"\n', {"http": ("127.0.0.1", 2)}, {"is_stdio": False, "http": ("127.0.0.1", 2)}),
        ('[transport]\nurl = "pigeon://a"\n', {}, {"has_transport": True, "transport": None, "http": None}),
        ("", {"transport": "pigeon://a"}, {"has_transport": True, "transport": "pigeon://a"}),
        ("", {"transport": "dove://a"}, "dove"),
        ('[serve]\nhealth = "127.0.0.1:3"\n', {"mcp": "stdio"}, {"health": ("127.0.0.1", 3)}),
        ('[serve]\nhealth = "x"\n', {"mcp": "stdio", "health": ("::1", 4)}, {"health": ("::1", 4)}),
        ("", {"mcp": "stdio", "changes": {"tokens_file": "x"}}, "authenticate callers over HTTP"),
        ("", {"mcp": "stdio", "changes": {"cert": "no.pem"}}, {"tls": None}),
        ("", {"http": ("127.0.0.1", 1), "changes": {"cert": "no.pem"}}, "expected a certificate"),
    ],
)
def test_the_command_line_and_the_configuration_name_the_servers(
    config: str, options: dict[str, Any], expected: Any, tmp_path: Path
) -> None:
    (tmp_path / "operad.toml").write_text(config)
    plugins = load_plugins(only=["serve"])
    plugins.register(Standard(), "standard")
    plugins.register(Pigeons(), "pigeons")
    registry = OperationRegistry.from_config(tmp_path / "operad.toml", plugins)
    none = dict.fromkeys(("http", "mcp", "transport", "health", "identity"))
    given: dict[str, Any] = {**none, "base_dir": tmp_path, "mask_errors": True, "servers": {}, **options}
    if isinstance(expected, str):
        with pytest.raises(OperadError, match=expected):
            plan_of(registry, **given)
    else:
        plan = plan_of(registry, **given)
        assert {name: getattr(plan, name) for name in expected} == expected


class Doves:
    """A transport with options."""

    def __init__(self) -> None:
        self.given: list[tuple[str, dict[str, Any]]] = []

    @hookimpl
    def operad_transports(self) -> list[TransportFactory]:
        return [TransportFactory(("dove",), self.made)]

    def made(self, url: str, **options: Any) -> Any:
        if "wrong" in options:
            raise ConfigError("wrong: no such option")
        self.given.append((url, options))
        return self


@pytest.mark.parametrize(
    ("config", "url", "given", "complaint"),
    [
        ('url = "dove://a:1"\nkind = "x"', None, ("dove://a:1", {"kind": "x"}), ""),
        ('url = "dove://a:1"\nkind = "x"', "dove://a:1", ("dove://a:1", {"kind": "x"}), ""),
        ('url = "dove://a:1/p"\nkind = "x"', "dove://a:1/q", ("dove://a:1/q", {"kind": "x"}), ""),
        ('url = "dove://a:1"\nkind = "x"', "dove://a:2", ("dove://a:2", {}), "options are not used here: kind"),
        ('url = "dove://a:1"', "dove://b:1", ("dove://b:1", {}), ""),
        ('kind = "x"', "dove://b:1", ("dove://b:1", {"kind": "x"}), ""),
        ('kind = "x"', None, None, "expected the URL of a transport, got none"),
        ('url = "dove://a"\nwrong = 1', None, None, "no such option @ operad.toml:1"),
        ('url = "dove://a"\nwrong = 1', "dove://a/x", None, "no such option$"),
    ],
)
def test_options_of_a_transport_are_for_its_own_server_alone(
    config: str,
    url: str | None,
    given: Any,
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("operad.toml").write_text(f"[transport]\n{config}\n")
    doves, plugins = Doves(), Plugins()
    plugins.register(doves, "doves")
    registry = OperationRegistry.from_config("operad.toml", plugins)
    if given is None:
        with pytest.raises(ConfigError, match=complaint):
            transport_of(registry, url)
    else:
        assert transport_of(registry, url) == (doves, given[0])
        assert doves.given == [given]
        err = capsys.readouterr().err
        assert err == "" if not complaint else complaint in err


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


async def routed(path: str, root: str, *mounts: str) -> str:
    """The mount of the application that responds to a request; else the detail of the problem."""

    def app(mount: str) -> Any:
        async def respond(scope: Any, receive: Any, send: Any) -> None:
            exchange = Exchange(scope, receive, send, scope["path"])
            await exchange.respond(200, f"{mount}{' admitted' * (ADMISSION in scope)}".encode())

        return respond

    apps = [Mounted(mount, mount, app(mount), is_login=mount == "/oauth") for mount in mounts]
    answer = await asked(Composition(apps, Gate(lambda credentials: None)), "GET", path, root=root)
    return answer.body.decode() if answer.status == 200 else str(answer.json()["detail"])


ALL = ("/", "/mcp", "/oauth", "/connect", "/metrics")


@pytest.mark.parametrize("root", ["", "/tools", "/tools/"])
@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/mcp", "/mcp admitted"),
        ("/mcp/", "/ admitted"),
        ("/metrics", "/metrics admitted"),
        ("/other", "/ admitted"),
        ("/oauth/token", "/oauth"),
        ("/oauth", "/oauth"),
        ("/.well-known/oauth-authorization-server", "/oauth"),
        ("/.well-known/oauth-authorization-server/x", "/oauth"),
        ("/.well-known/oauth-protected-resource", "/oauth"),
        ("/.well-known/oauth-protected-resource/mcp", "/mcp admitted"),
        ("/connect/users", "/connect admitted"),
        ("/disconnect/users", "/connect admitted"),
        ("/connected", "/ admitted"),
    ],
)
async def test_a_request_goes_to_the_application_of_its_path(path: str, mount: str, root: str) -> None:
    assert await routed(root.rstrip("/") + path, root, *ALL) == mount


async def test_a_path_of_no_application_is_404_and_metadata_without_logins_are_those_of_mcp() -> None:
    assert await routed("/x", "", "/mcp", "/metrics") == "no such path; expected one of /mcp, /metrics"
    assert await routed("/.well-known/oauth-protected-resource", "", "/", "/mcp") == "/mcp admitted"
    assert (
        await routed("/.well-known/oauth-protected-resource/tools/mcp", "/tools", "/", "/mcp") == "/mcp admitted"
    )
    assert await routed("/toolsmith", "/tools", *ALL) == "/ admitted"


async def test_a_composition_closes_websockets_and_has_no_lifespan() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    for kind in ("lifespan", "websocket"):
        await Composition([], Gate())({"type": kind}, asyncio.Event().wait, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]


async def test_a_server_that_fails_to_stop_is_in_the_log_and_the_others_stop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[float] = []

    class App:
        def __init__(self, answer: dict[str, Any] | None) -> None:
            self.answer = answer

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            if self.answer is None:
                await asyncio.Event().wait()
            await send({"type": "lifespan.shutdown.failed", **(self.answer or {})})
            await send({"type": "lifespan.shutdown.complete"})

        async def drain(self, timeout: float) -> None:
            drained.append(timeout)
            if self.answer:
                raise OSError("no disk")

    async def ends(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})

    monkeypatch.setattr("operad_serve.door.composition._STARTUP", 0.05)
    apps = {"a": App({"message": "busy"}), "b": App({}), "c": App(None), "d": ends}
    served = Composition([Mounted(name, f"/{name}", app) for name, app in apps.items()], Gate())
    async with served.running():
        await served.drain(3.0)
    assert drained == [3.0] * 3
    assert [record.getMessage() for record in caplog.records] == [
        'the server "a" failed to drain: OSError: no disk',
        'the server "c" failed to stop: it took more than 0.05 s',
        'the server "b" failed to stop: no reason given',
        'the server "a" failed to stop: busy',
    ]


async def test_a_server_that_takes_too_long_to_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("operad_serve.door.composition._STARTUP", 0.01)
    with pytest.raises(ConfigError, match='the server "a" did not start: it took more than 0.01 s'):
        async with Composition([Mounted("a", "/", slow)], Gate()).running():
            pass
