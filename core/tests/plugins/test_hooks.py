"""Every hook does what its documentation says. One test at least per hook, named after it: a test checks that."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import attrs
import pytest

from core.tests.kit import data_of, error_of, giving, op, raising, registry_of, streaming
from operad import (
    CallError,
    ConfigError,
    EnvelopeKind,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    PluginError,
    ResponseEnvelope,
    hookspecs,
)
from operad.auth import CredentialProvider, provider_of
from operad.plugin import Interceptor, Server, Source, SourceContext, SourceSession, Table, TransportFactory
from operad_testing import CallLog, StaticSource, make_plugin, plugins_of

ANSWER = giving(42)


def operation(name: str, handler: Any = ANSWER, **spec: Any) -> Operation[..., Any]:
    return op(f"hook.{name}", handler, **spec)


def hooked(*operations: Any, **hooks: Any) -> OperationRegistry:
    """Return a registry with operations and a plugin."""
    return registry_of(*operations, plugins=[make_plugin("p", **hooks)])


def test_every_hook_has_a_test() -> None:
    hooks = [name for name in vars(hookspecs) if name.startswith("operad_")]
    assert hooks
    for hook in hooks:
        assert any(name.startswith(f"test_{hook}") for name in globals()), f"{hook} is not tested"


def test_operad_search_makes_the_index_of_a_registry() -> None:
    class Last:
        def __init__(self, specs: Any) -> None:
            self.ids = sorted(spec.id for spec in specs)

        def search(self, query: str, limit: int) -> list[str]:
            return self.ids[-limit:]

    registry = hooked(operation("a"), operation("b"), operad_search=lambda: Last)
    assert [spec.id for spec in registry.search("anything", 1)] == ["hook.b"]


async def test_operad_interceptors_stand_around_the_calls_that_they_match() -> None:
    seen: list[Any] = []

    async def tap(call: Any, proceed: Any) -> Any:
        seen.append(call.spec.id)
        return await proceed(call)

    def tapping(registry: OperationRegistry) -> list[Interceptor]:
        seen.append(registry)
        return [Interceptor(tap, match="hook.o*")]

    nothing = make_plugin("n", operad_interceptors=lambda: None)
    plugins = [make_plugin("p", operad_interceptors=tapping), nothing]
    async with registry_of(operation("one"), operation("two"), plugins=plugins) as registry:
        assert (await registry.execute("hook.one")).data == 42
        assert (await registry.execute("hook.two")).data == 42
    assert seen == [registry, "hook.one"]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (["tap"], PluginError, r"p\.operad_interceptors must return a list of Interceptor, got one with str"),
        (RuntimeError("boom"), PluginError, r"p\.operad_interceptors raised .*boom.*; fix the plugin or disable"),
        (ConfigError("no such key"), ConfigError, "no such key"),
    ],
    ids=str,
)
def test_operad_interceptors_that_fail_make_no_registry(answer: Any, error: type[Exception], says: str) -> None:
    def operad_interceptors() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(error, match=says):
        hooked(operad_interceptors=operad_interceptors)


@attrs.frozen
class HookMeta:
    source: ClassVar[str] = "hook"
    lost: bool = False


async def test_operad_envelope_kinds_are_known_to_the_registry_that_has_the_plugin() -> None:
    made = ResponseEnvelope("not an integer", HookMeta(lost=True))
    lost = operation("lose", giving(made), output_schema={"type": "integer"})
    kinds = [EnvelopeKind("hook", HookMeta, lambda meta: meta.lost)]
    for registry in (hooked(lost, operad_envelope_kinds=kinds), registry_of(lost)):
        # An error envelope is not cast, nor is one of an unknown kind.
        assert (await registry.execute("hook.lose")).data == "not an integer"


async def test_operad_sources_load_by_name_with_their_options_and_close_with_the_registry() -> None:
    closed = []

    class Session(SourceSession):
        async def aclose(self) -> None:
            closed.append(True)

    @attrs.frozen
    class Config:
        start: int = 0

    async def load(config: Config, context: SourceContext) -> SourceSession:
        return Session([op(f"{context.namespace}.count", giving(config.start + 1))])

    async with hooked(operad_sources=[Source("p", load, Config)]) as registry:
        (spec,) = await registry.load("p", namespace="seven", start=6)
        assert spec.id == "seven.count"
        assert (await registry.execute("seven.count")).data == 7
    assert closed == [True]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_operad_resolve_operation_answers_ids_that_the_registry_does_not_hold(asynchronous: bool) -> None:
    asked = []

    def resolve(operation_id: str) -> Operation[..., Any] | None:
        asked.append(operation_id)
        return operation(operation_id.removeprefix("hook.")) if operation_id.startswith("hook.") else None

    async def aresolve(operation_id: str) -> Operation[..., Any] | None:
        return resolve(operation_id)

    silent = make_plugin("a", operad_resolve_operation=lambda operation_id: None)
    knowing = make_plugin("b", operad_resolve_operation=aresolve if asynchronous else resolve)
    async with registry_of(plugins=[silent, knowing]) as registry:
        for timeout in (5, None):
            assert (await registry.execute("hook.found", timeout=timeout)).data == 42
        assert asked == ["hook.found"]  # the registry keeps it
        with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
            await registry.execute("other.missing")


async def test_operad_resolve_operation_that_raises_does_not_keep_the_next_plugin_from_answering() -> None:
    def broken(operation_id: str) -> Any:
        raise RuntimeError("the catalogue is on fire")

    def works(operation_id: str) -> Any:
        return operation("found") if operation_id == "hook.found" else None

    plugins = [make_plugin(f"p{made.__name__}", operad_resolve_operation=made) for made in (broken, works)]
    async with registry_of(plugins=plugins) as registry:
        assert (await registry.execute("hook.found")).data == 42
        error = await error_of(registry.execute("hook.missing"), "the catalogue is on fire")
        assert error.code == "EXECUTION_ERROR"


@pytest.mark.parametrize("answered", [operation("other"), "hook.found", 3])
async def test_operad_resolve_operation_that_answers_something_else_is_passed_over(
    answered: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
        await hooked(operad_resolve_operation=lambda operation_id: answered).execute("hook.found")
    made = answered.id if isinstance(answered, Operation) else type(answered).__name__
    assert f'expected operation "hook.found", got "{made}": ignored' in caplog.text


async def test_operad_credentials_gives_sources_the_credential_of_the_caller_of_each_call() -> None:
    async def vault(context: OperationContext, origin: str) -> dict[str, str]:
        return {"type": "bearer", "token": f"of {context.request_id} for {origin}"}

    async def load(config: Any, context: SourceContext) -> SourceSession:
        async def handler(input: Any, call: OperationContext) -> Any:
            return await provider_of(context.registry, config.provider).get(call, "https://api.example.com")

        return SourceSession([operation("who", handler)])

    @attrs.frozen
    class Options:
        provider: str = "vault"

    plugins = plugins_of(
        make_plugin("p", operad_credentials=lambda registry: [CredentialProvider("vault", vault)]),
        make_plugin("q", operad_sources=lambda: [Source("static", load, Options)]),
    )
    async with OperationRegistry(plugins) as registry:
        await registry.load("static")
        envelope = await registry.execute("hook.who", {}, OperationContext("r1"))
        assert envelope.data["token"] == "of r1 for https://api.example.com"
    async with OperationRegistry(plugins) as registry:
        await registry.load("static", provider="vaults")
        with pytest.raises(CallError, match='did you mean "vault"'):
            await registry.execute("hook.who")


async def test_operad_register_operations_fills_each_new_registry() -> None:
    plugins = plugins_of(
        make_plugin("p", operad_register_operations=lambda registry: registry.register(operation("ready")))
    )
    for _ in range(2):
        async with OperationRegistry(plugins) as registry:
            assert (await registry.execute("hook.ready")).data == 42


async def test_operad_operation_added_sees_operations_of_applications_and_sources() -> None:
    added: list[str] = []
    source = StaticSource("static", [operation("of_source")])
    observer = make_plugin("p", operad_operation_added=lambda spec: added.append(spec.id))
    async with registry_of(operation("of_application"), plugins=[source, observer]) as registry:
        await registry.load("static")
        source.change([operation("of_source"), operation("later")])
    assert added[:2] == ["hook.of_application", "hook.of_source"]
    assert "hook.later" in added


async def test_operad_operation_removed_sees_changes_and_the_end_of_a_source() -> None:
    removed: list[str] = []
    source = StaticSource("static", [operation("one"), operation("two")])
    observer = make_plugin("p", operad_operation_removed=lambda spec: removed.append(spec.id))
    async with registry_of(operation("own"), plugins=[source, observer]) as registry:
        await registry.load("static")
        registry.unregister("hook.own")
        source.change([operation("two")])
        assert removed == ["hook.own", "hook.one"]
    assert removed[-1] == "hook.two"


async def test_operad_operation_added_may_raise_without_harm(caplog: pytest.LogCaptureFixture) -> None:
    def broken(spec: OperationSpec) -> None:
        raise RuntimeError("full")

    assert (await hooked(operation("one"), operad_operation_added=broken).execute("hook.one")).data == 42
    assert "full" in caplog.text


def test_operad_servers_are_found_by_name() -> None:
    server = Server("post", serve, HookMeta)
    assert plugins_of(make_plugin("p", operad_servers=[server])).server("post") is server


def test_operad_tables_are_told_with_their_classes() -> None:
    @attrs.frozen
    class Loft:
        height: int = 3

    made = [Table("hub", lambda: Loft, "A loft."), Table("roof", Loft, "A roof.")]
    (tables,) = plugins_of(make_plugin("p", operad_tables=made)).implementations("operad_tables")
    told = [(table.name, table.config_type, table.description) for table in tables()]
    assert told == [("hub", Loft, "A loft."), ("roof", Loft, "A roof.")]
    with pytest.raises(TypeError, match='table "hub": config_type must be an attrs class'):
        Table("hub", int)


def test_operad_commands_get_the_command_line() -> None:
    cli: list[str] = []
    assert plugins_of(make_plugin("p", operad_commands=lambda cli: cli.append("coo"))).add_commands(cli) == []
    assert cli == ["coo"]


class Pigeons:
    """A transport that is not our `Transport`."""


class Flights:
    """A call map and a call server, as far as making one goes."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    open = aclose = call = subscribe = __aenter__


def test_operad_call_map_is_asked_of_plugins_until_one_takes_the_transport() -> None:
    made: list[Any] = []
    flights = Flights()

    def theirs(transport: Any, options: Any) -> Any:
        if isinstance(transport, Pigeons):
            made.append(options["timeout"])
            return flights
        return None

    factory = TransportFactory(("pigeon",), lambda url, **options: Pigeons())  # type: ignore[arg-type,return-value]  # a foreign transport
    plugins = plugins_of(
        make_plugin("other", operad_call_map=lambda transport, options: None),
        make_plugin("p", operad_call_map=theirs, operad_transports=[factory]),
    )
    assert plugins.call_map("pigeon://loft", timeout=3.0) is flights
    assert plugins.call_map(Pigeons(), timeout=4.0) is flights  # type: ignore[arg-type]  # a foreign transport
    assert made == [3.0, 4.0]
    with pytest.raises(PluginError, match="operad_call_map.*operad-calls"):
        plugins.call_map(object())  # type: ignore[arg-type]  # one that no plugin takes


def test_operad_call_server_gets_the_registry_and_the_options() -> None:
    def theirs(registry: Any, transport: Any, options: Any) -> Any:
        return Flights(registry, options)

    plugins = plugins_of(make_plugin("p", operad_call_server=theirs))
    registry = OperationRegistry(plugins)
    made: Any = plugins.call_server(registry, Pigeons(), lease=2.0)  # type: ignore[arg-type]  # a foreign one
    assert made.given == (registry, {"lease": 2.0})


@pytest.mark.parametrize("made", ["a call map", 5, False, object()])
def test_what_is_no_call_map_or_call_server_is_an_error_that_names_the_plugin(made: Any) -> None:
    plugins = plugins_of(
        make_plugin("p", operad_call_map=lambda transport, options: made),
        make_plugin("q", operad_call_server=lambda registry, transport, options: made),
    )
    got = re.escape(repr(made)[:60])
    with pytest.raises(PluginError, match=f"p.*operad_call_map: expected CallMap, got {got}"):
        plugins.call_map(Pigeons())  # type: ignore[arg-type]  # a foreign one
    with pytest.raises(PluginError, match=f"q.*operad_call_server: expected CallServer, got {got}"):
        plugins.call_server(OperationRegistry(plugins), Pigeons())  # type: ignore[arg-type]  # a foreign one


def test_a_call_map_that_cannot_be_made_names_its_plugin() -> None:
    def broken(transport: Any, options: Any) -> Any:
        raise RuntimeError("no pigeons today")

    with pytest.raises(PluginError, match=r'"p".*operad_call_map raised RuntimeError: no pigeons today'):
        plugins_of(make_plugin("p", operad_call_map=broken)).call_map(Pigeons())  # type: ignore[arg-type]  # the same


def test_operad_transports_are_chosen_by_scheme_and_get_the_url() -> None:
    made = []

    def roof(url: str, height: int = 0) -> Any:
        made.append((url, height))
        return Pigeons()

    plugins = plugins_of(make_plugin("p", operad_transports=[TransportFactory(("roof", "roofs"), roof)]))
    plugins.transport("roofs://a", height=3)
    assert made == [("roofs://a", 3)]


async def test_operad_call_started_sees_every_call_with_its_parent() -> None:
    async def outer(input: Any, context: Any) -> Any:
        return (await context.env.hook.inner()).data

    log = CallLog()
    await registry_of(operation("outer", outer), operation("inner"), plugins=[log]).execute("hook.outer")
    first, second = log.started
    assert (first.operation_id, second.operation_id) == ("hook.outer", "hook.inner")
    assert (first.parent_request_id, second.parent_request_id) == (None, first.request_id)
    assert [call for call, _ in log.finished] == [second, first]


async def test_operad_call_finished_sees_the_outcome_of_results_errors_and_streams() -> None:
    log = CallLog()
    count = operation("count", streaming(0, 1, 2), type="subscription")
    registry = registry_of(operation("ok"), operation("fail", raising(ValueError("no"))), count, plugins=[log])
    await registry.execute("hook.ok")
    await error_of(registry.execute("hook.fail"))
    assert await data_of(registry.subscribe("hook.count")) == [0, 1, 2]
    outcomes = [(o.error and o.error.code, o.items) for _, o in log.finished]
    assert outcomes == [(None, 1), ("EXECUTION_ERROR", 0), (None, 3)]
    assert all(outcome.duration_ms >= 0 for _, outcome in log.finished)


async def test_operad_call_reported_sees_what_a_call_tells_while_it_runs() -> None:
    async def tells(input: Any, context: OperationContext) -> None:
        context.report("retry", "503", attempt=1)

    log = CallLog()
    await registry_of(operation("tells", tells), plugins=[log]).execute("hook.tells")
    ((call, report),) = log.reported
    assert call.operation_id == "hook.tells"
    assert (report.kind, report.message, report.attributes) == ("retry", "503", {"attempt": 1})


async def serve(registry: Any, config: Any) -> None: ...
