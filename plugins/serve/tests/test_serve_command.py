"""What `operad serve` rejects and prints before anything is served."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
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
from operad_serve.door import front_door, messages
from operad_serve.door.composition import Composition, Mounted
from operad_serve.door.options import open_operations, problems
from operad_serve.door.plan import plan_of
from operad_serve.door.transport import transport_of
from plugins.serve.tests.front_door import TABLES, asked

LOCAL = '[sources.x]\ntype = "scanner"\npath = "ops.py"\n'


ANY_PORT = ("127.0.0.1", 0)


@pytest.fixture
def operad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command `operad serve`, in a folder whose source must not be loaded."""
    app = pytest.importorskip("operad_cli.app").application()
    runner = pytest.importorskip("click.testing").CliRunner()
    monkeypatch.chdir(tmp_path)
    Path("ops.py").write_text("raise SystemError('sources were loaded')")

    def run(*arguments: str, config: str = "") -> Any:
        Path("operad.toml").write_text(LOCAL + config)
        return runner.invoke(app, ["serve", *arguments])

    return run


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of commands, which serve nothing."""
    made: list[Plan] = []

    async def serve(registry: OperationRegistry, plan: Plan, load: object = None) -> int:
        made.append(plan)
        return 0

    monkeypatch.setattr(front_door, "serve", serve)
    return made


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., OperationRegistry]:
    """Make a registry with a configuration and plugins."""
    monkeypatch.chdir(tmp_path)

    def make(config: str, *plugins: object) -> OperationRegistry:
        Path("operad.toml").write_text(config)
        return OperationRegistry.from_config("operad.toml", plugins_of(*plugins, only=["serve"]))

    return make


def plugins_of(*plugins: object, only: Sequence[str] = ()) -> Plugins:
    found = load_plugins(only=only)
    for each in plugins:
        found.register(each, type(each).__name__)
    return found


def door_of(plugins: Plugins, options: ServeOptions | None = None, stopped: Any = None, **plan: Any) -> FrontDoor:
    made = Plan(options=options or ServeOptions(), **plan)
    return FrontDoor(OperationRegistry(plugins), made, stopped or asyncio.Event())


@pytest.mark.parametrize(("arguments", "config", "code", "complaint"), TABLES["complaints"])
def test_what_cannot_be_served_is_said_before_any_source_is_loaded_and_quotes_no_secret(
    operad: Any, arguments: list[str], config: str, code: int, complaint: str
) -> None:
    result = operad(*arguments, config=config)
    message = " ".join(f"{result.exception} {result.output}".split())
    assert (result.exit_code, complaint in message) == (code, True), message
    assert isinstance(result.exception, OperadError if code == 1 else SystemExit)
    assert "s3cret" not in message


class NotThereYet(InProcessTransport):
    """A transport that refuses so many connections, and the plugin that contributes it."""

    refusals = 2

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        if self.refusals:
            self.refusals -= 1
            raise LinkDownError("the hub is down")
        return await super().open(on_event, on_link)

    @hookimpl
    def operad_transports(self) -> list[TransportFactory]:
        return [TransportFactory(("late",), lambda url, **options: self)]

    def door(self, stopped: asyncio.Event) -> FrontDoor:
        found = plugins_of(self, only=["operad-calls"])
        return door_of(found, stopped=stopped, transport="late://x", has_transport=True)


async def test_a_worker_waits_for_a_server_that_is_not_there_yet(capsys: pytest.CaptureFixture[str]) -> None:
    bus = NotThereYet()
    async with bus.door(asyncio.Event()).open():
        assert bus.refusals == 0
    assert capsys.readouterr().err.count("the hub is down; trying again until it is up") == 1


async def test_a_signal_ends_the_wait_for_a_server_that_is_not_there() -> None:
    stopped = asyncio.Event()
    stopped.set()
    with pytest.raises(LinkDownError, match="the hub is down"):
        async with NotThereYet().door(stopped).open():
            pass


class Pigeons:
    """A transport that is not one of operad's, with a call server that keeps its options."""

    @hookimpl
    def operad_transports(self) -> list[TransportFactory]:
        return [TransportFactory(("pigeon",), lambda url: self)]

    @hookimpl
    def operad_call_server(self, transport: object, options: dict[str, Any]) -> Any:
        self.options = options
        return self.serving()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self.is_serving = True
        yield
        self.is_serving = False


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
    changes: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pigeons = Pigeons()
    async with door_of(plugins_of(pigeons), transport="pigeon://loft", has_transport=True, **changes).open():
        assert (pigeons.options, pigeons.is_serving) == (expected, True)
    assert not pigeons.is_serving
    assert capsys.readouterr().err == "serving 0 operations on pigeon://loft\n"


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_front_door_leaves_the_collector_as_it_found_it(frozen: bool) -> None:
    """A program may run the command within itself."""
    counts: list[int] = []

    def ready() -> None:
        counts.append(gc.get_freeze_count())
        signal.raise_signal(signal.SIGTERM)

    plan = Plan(options=ServeOptions(), transport="pigeon://loft", has_transport=True, on_ready=ready)
    try:
        if frozen:
            gc.freeze()
        assert await front_door.serve(OperationRegistry(plugins_of(Pigeons())), plan, nothing) == 0
        assert counts[0] > 0
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], (7, 5.0, 3.0, 2.0)), (["--max-concurrent", "1", "--lease", "0.5", "--drain", "0"], (1, 0.5, 0.0, 0.0))],
)
def test_the_bounds_of_calls_are_the_command_lines_else_the_configurations(
    operad: Any, plans: list[Plan], arguments: list[str], expected: tuple[float, ...]
) -> None:
    given = "[calls]\nmax_concurrent = 7\nlease = 5\ndrain_timeout = 3\n"
    config = f'{given}[serve]\ndrain_timeout = 2\n[transport]\nurl = "ws://127.0.0.1:1"\n'
    assert operad(*arguments, config=config).exit_code == 0
    calls, drain_timeout = plans[0].calls, plans[0].options.drain_timeout
    assert (calls.max_concurrent, calls.lease, calls.drain_timeout, drain_timeout) == expected


def test_files_of_the_command_line_start_from_the_current_folder(
    operad: Any, plans: list[Plan], tmp_path: Path
) -> None:
    Path("conf").mkdir()
    Path("conf/operad.toml").write_text("")
    Path("tokens.json").write_text('{"joe-token-123456": "joe"}')
    words = ("--tokens", "tokens.json", "--http", "127.0.0.1:0", "--token", "ann=ann-token-123456")
    more = (
        "--config",
        "conf/operad.toml",
        "--access-log",
        "--strict",
        "--keep-alive",
        "0.5",
        "--identity",
        "peer",
    )
    operad(*words, *more)
    operad(*words[2:4], "--openapi", "x.json")
    operad(*words[2:4], "--mcp-server", "x")
    plan, one, other = plans
    options = plan.options
    assert options.tokens_file == str(tmp_path / "tokens.json")
    assert (options.access_log, options.strict, options.keep_alive) == (True, True, 0.5)
    assert list(options.tokens) == [TokenRecord(token="ann-token-123456", id="ann")]
    assert (plan.http, plan.identity, plan.base_dir.name) == (ANY_PORT, "peer", "conf")
    assert (plan.servers, plan.mask_errors) == ({}, True)
    for single in (one, other):
        assert (single.servers, single.options.tokens_file) == ({"mcp": {"names": "name"}}, None)


def test_messages_are_records_if_the_log_is_written_as_json(
    operad: Any, plans: list[Plan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(messages, "_in_log", False)
    caplog.set_level(logging.WARNING, "operad.serve")
    caplog.handler.setLevel(logging.NOTSET)
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    for formatter, in_log in ((None, False), (pytest.importorskip("operad_cli.output.logs").JSONLines(), True)):
        handler.setFormatter(formatter)
        operad("--http", "127.0.0.1:0")
        messages.report("  draining\x00")
        assert (capsys.readouterr().err == "  draining\\x00\n") is not in_log
        assert ([record.getMessage() for record in caplog.records] == ["draining\\x00"]) is in_log


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


async def echo(input: Any, context: object) -> Any:
    return input


async def nothing(registry: OperationRegistry) -> int:
    return 0


@pytest.mark.parametrize("others", [{}, {"http": ANY_PORT}])
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
    assert await front_door.serve(OperationRegistry(plugins_of(standard)), plan, nothing) == 0
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
    async with door_of(plugins_of(standard), ServeOptions(timeout=5.0), is_stdio=True).open() as ended:
        while not standard.configs:
            await asyncio.sleep(0)
        assert not ended.is_set()
    assert standard.is_cancelled
    assert standard.configs == [StandardOptions(None, 5.0, 4 * 1024 * 1024)]


@pytest.mark.parametrize(
    ("tokens", "anonymous", "explorer"), [(False, False, True), (True, False, False), (True, True, True)]
)
async def test_the_greeting_names_each_address_and_what_requires_credentials(
    registry: OperationRegistry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tokens: bool, anonymous: bool, explorer: bool,
) -> None:  # fmt: skip
    told: list[str] = []
    monkeypatch.setattr(front_door, "tell_manager", told.append)
    records = [TokenRecord(token="joe-token-123456", id="joe")] if tokens else []
    options = ServeOptions(tokens=records, anonymous=anonymous, explorer=explorer)
    stop = {"on_ready": lambda: signal.raise_signal(signal.SIGTERM)}
    plan = Plan(options=options, http=ANY_PORT, health=ANY_PORT, **stop)
    made = OperationRegistry(registry.plugins)
    for spec in registry.specs():
        made.register(spec, echo)
    assert await front_door.serve(made, plan, nothing) == 0
    assert told == ["READY=1", "STOPPING=1"]
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
    assert await front_door.serve(OperationRegistry(plugins_of(standard)), plan, load) == 4
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

    standard.app = lambda registry, config: Application()
    door = door_of(plugins_of(standard), ServeOptions(drain_timeout=7.0), http=ANY_PORT, health=ANY_PORT)
    async with aiohttp.ClientSession() as session, door.open():
        assert await asked("/health") == (200, '{"status":"ok","ready":true}')
        status, body = await asked("/")
        assert (status, "expected /health" in body) == (404, True)
        assert (door.has_openapi, door.has_explorer, door.has_mcp) == (False, False, True)
    assert seen == [(7.0, (503, '{"status":"draining","ready":false}'))]


async def test_without_a_server_for_http_there_is_nothing_to_serve() -> None:
    standard = Standard()
    standard.app = None  # a server without an application
    with pytest.raises(ConfigError, match="expected a plugin that serves over HTTP, got none"):
        async with door_of(plugins_of(standard), http=ANY_PORT).open():
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

    kept: list[Any] = []
    assert front_door.run(serving(False, None)) == 5
    with pytest.raises(ConfigError, match="no disk"):
        front_door.run(serving(False, ConfigError("no disk")))
    assert ended == ["a task"] * 2
    monkeypatch.setattr(front_door, "_LAST_WAIT", 0.01)
    monkeypatch.setattr("os._exit", sys.exit)  # it would end the tests
    with pytest.raises(SystemExit, match="1"):
        front_door.run(serving(True, ConfigError("no disk")))
    assert "error: no disk\nerror: a call ignored its cancellation" in capsys.readouterr().err


@pytest.mark.parametrize(("config", "found"), TABLES["tables of a configuration"])
def test_each_table_that_would_be_rejected_is_named_with_its_place(
    configured: Any, config: str, found: list[list[Any]]
) -> None:
    named = list(problems(configured(config)))
    assert [table for table, _ in named] == [table for table, _, _ in found]
    for (_, error), (_, text, line) in zip(named, found, strict=True):
        assert text in str(error)
        assert f"operad.toml:{line}" in str(error)


@pytest.mark.parametrize(("config", "scopes", "expected"), TABLES["open operations"])
def test_operations_that_every_caller_may_call_are_counted(
    configured: Any, config: str, scopes: list[str], expected: str | None
) -> None:
    registry = configured(config)
    access = AccessControl(required_scopes=scopes)
    registry.register(OperationSpec(namespace="a", name="n", access_control=access), echo)
    assert open_operations(registry) == expected


@pytest.mark.parametrize(("config", "options", "expected"), TABLES["servers of a command"])
def test_the_command_line_and_the_configuration_name_the_servers(
    configured: Any, config: str, options: dict[str, Any], expected: Any
) -> None:
    registry = configured(config, Standard(), Pigeons())
    none = dict.fromkeys(("http", "mcp", "transport", "health", "identity"))
    given: dict[str, Any] = {**none, "base_dir": Path(), "mask_errors": True, "servers": {}, **options}
    if isinstance(expected, str):
        with pytest.raises(OperadError, match=expected):
            plan_of(registry, **given)
    else:
        plan = plan_of(registry, **given)
        assert json.loads(json.dumps({name: getattr(plan, name) for name in expected})) == expected


class Doves:
    """A transport with options."""

    @hookimpl
    def operad_transports(self) -> list[TransportFactory]:
        return [TransportFactory(("dove",), self.made)]

    def made(self, url: str, **options: Any) -> Any:
        if "wrong" in options:
            raise ConfigError("wrong: no such option")
        return [url, options]


@pytest.mark.parametrize(("config", "url", "given", "complaint"), TABLES["options of transports"])
def test_options_of_a_transport_are_for_its_own_server_alone(
    configured: Any, config: str, url: str | None, given: Any, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = configured(f"[transport]\n{config}\n", Doves())
    if given is None:
        with pytest.raises(ConfigError, match=complaint):
            transport_of(registry, url)
    else:
        assert transport_of(registry, url) == (given, given[0])
        err = capsys.readouterr().err
        assert err == "" if not complaint else complaint in err


def composed(*apps: Any) -> Composition:
    """Applications, named and mounted by the letters of the alphabet."""
    return Composition([Mounted(name, f"/{name}", app) for name, app in zip("abcd", apps, strict=False)], Gate())


def test_two_servers_that_want_one_path_are_both_named() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(ConfigError, match='"a" and "b" have the same path /mcp'):
        Composition([Mounted("a", "/mcp", app), Mounted("b", "/mcp", app)], Gate())


async def test_a_server_that_does_not_start_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no disk"})

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    for app, reason in ((refuses, "no disk"), (waits, "it took more than 0.01 s")):
        with pytest.raises(ConfigError, match=f'the server "a" did not start: {reason}'):
            async with composed(app).running():
                pass
        monkeypatch.setattr("operad_serve.door.composition._STARTUP", 0.01)


async def test_a_request_with_two_credentials_reaches_no_application() -> None:
    both = {"authorization": "Bearer one", "Authorization": "Bearer two"}
    answer = await asked(composed(None), "GET", "/a", **both)
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert b"Authorization is present more than once" in answer.body


async def test_lifespans_run_also_for_an_application_that_knows_none() -> None:
    seen = []

    async def full(scope: Any, receive: Any, send: Any) -> None:
        for phase in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{phase}"
            seen.append(phase)
            await send({"type": f"lifespan.{phase}.complete"})

    async def without(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    async with composed(full, without).running():
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
@pytest.mark.parametrize(("path", "mount"), TABLES["paths of applications"])
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
    served = composed(App({"message": "busy"}), App({}), App(None), ends)
    async with served.running():
        await served.drain(3.0)
    assert drained == [3.0] * 3
    assert [record.getMessage() for record in caplog.records] == [
        'the server "a" failed to drain: OSError: no disk',
        'the server "c" failed to stop: it took more than 0.05 s',
        'the server "b" failed to stop: no reason given',
        'the server "a" failed to stop: busy',
    ]
