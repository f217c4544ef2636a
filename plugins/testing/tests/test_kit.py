"""The conformance kit: a source, a kind and a plugin that behave pass; each fault fails the test meant for it."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import attrs
import pytest

from operad import (
    CallError,
    EnvelopeKind,
    Operation,
    OperationRegistry,
    OperationSpec,
    OperationType,
    Plugins,
    ResponseEnvelope,
    SourceError,
)
from operad.plugin import Source, SourceContext, SourceSession
from operad_testing import (
    CallLog,
    EnvelopeKindCapabilities,
    EnvelopeKindConformance,
    Example,
    PluginConformance,
    SourceCapabilities,
    SourceConformance,
    StaticSource,
    make_plugin,
    plugins_of,
    run,
    support_table,
)

# --- the subject: a loft of pigeons, and the faults it can have -----------------------------------


@attrs.frozen
class PigeonMeta:
    source: ClassVar[str] = "pigeon"
    ring_number: int
    colour: str | None = None
    lost: bool = False


@attrs.frozen(kw_only=True)
class PigeonConfig:
    token: str = attrs.field(repr=False)
    birds: int = 2
    delay: float = 0.0


class PigeonSession(SourceSession):
    """With a task of its own, as a source with a connection has."""

    def __init__(self, operations: list[Operation[..., Any]], fault: str) -> None:
        super().__init__(operations)
        self.fault = fault
        self.task = asyncio.get_running_loop().create_task(asyncio.Event().wait())

    async def aclose(self) -> None:
        if self.fault == "close raises twice" and self.task.cancelled():
            raise RuntimeError("closed already")
        if self.fault != "leaves a task":
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


class Pigeons:
    """The plugin; ``fault`` names what is wrong with it."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.sessions: list[PigeonSession] = []
        self.names = ["fly"]
        self.flying = 0
        self.down = False

    def plugin(self) -> Plugins:
        description = "" if self.fault == "no description" else "pigeons"
        return plugins_of(
            make_plugin(
                "pigeons",
                operad_sources=[Source("pigeon", self.load, PigeonConfig, description)],
                operad_envelope_kinds=[EnvelopeKind("pigeon", PigeonMeta, lambda meta: meta.lost)],
            )
        )

    async def load(self, config: PigeonConfig, context: SourceContext) -> SourceSession:
        if self.fault == "logs the token":
            context.logger.info("token is %s", config.token)
        if config.birds == 0 and self.fault != "loads anything":
            raise SourceError("a loft without birds: expected birds >= 1")
        session = PigeonSession(self.operations(config, context.namespace or "pigeon"), self.fault)
        self.sessions.append(session)
        return session

    def operations(  # noqa: C901  # a list of small handlers
        self, config: PigeonConfig, namespace: str
    ) -> list[Operation[..., Any]]:
        if self.fault == "own namespace":
            namespace = "pigeon"
        if self.fault == "no operations":
            return []
        schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}

        def make(
            name: str, handler: Any, type: OperationType = OperationType.QUERY, **spec: Any
        ) -> Operation[..., Any]:
            return Operation(OperationSpec(namespace=namespace, name=name, type=type, **spec), handler)

        def envelope(data: Any, **meta: Any) -> Any:
            return data if self.fault == "no envelope" else ResponseEnvelope(data, PigeonMeta(1, **meta))

        async def fly(input: dict[str, Any], context: Any) -> Any:
            if self.fault == "broken after a cancellation" and self.fault in self.names:
                raise RuntimeError("lost")
            if self.fault == "too many at once" and self.flying >= 20:
                raise CallError("OVERLOADED", "the sky is full")
            if self.down:
                raise CallError("UNAVAILABLE", "the loft is closed")
            self.flying += 1
            await asyncio.sleep(0)
            self.flying -= 1
            data = {"at": "home" if self.fault == "wrong data" else input.get("to")}
            return envelope(data)

        async def flock(input: dict[str, Any], context: Any) -> Any:
            return envelope("coo" * (300_000 if self.fault == "cut off" else 400_000))

        async def count(input: dict[str, Any], context: Any) -> Any:
            return envelope("many")

        async def crash(input: dict[str, Any], context: Any) -> Any:
            if self.fault == "no error":
                return envelope(None)
            raise CallError("EXECUTION_ERROR", "" if self.fault == "silent error" else "a hawk")

        async def lose(input: dict[str, Any], context: Any) -> Any:
            return envelope(None, lost=self.fault != "error envelope looks fine")

        async def sleep(input: dict[str, Any], context: Any) -> Any:
            try:
                await asyncio.sleep(60 if self.fault != "not slow" else 0)
            finally:
                self.names.append("broken after a cancellation")

        async def watch(input: dict[str, Any], context: Any) -> AsyncIterator[Any]:
            for bird in range(config.birds):
                yield envelope({"bird": bird + (self.fault == "wrong items")})
            await asyncio.sleep(60)

        fly_schema = {} if self.fault == "accepts anything" else schema
        if self.fault == "broken schema":
            fly_schema = {**schema, "required": "to"}
        return [
            *(make(name, fly, input_schema=fly_schema) for name in self.names if name.isalpha()),
            make("crash", crash),
            make("flock", flock),
            make("count", count, output_schema={} if self.fault == "no output schema" else {"type": "integer"}),
            make("lose", lose),
            make("sleep", sleep),
            make("watch", watch, OperationType.SUBSCRIPTION),
        ]


class PigeonSuite(SourceConformance):
    """Not called Test…: the tests below run it."""

    fault = ""
    source = "pigeon"
    capabilities = SourceCapabilities(
        subscriptions=True, error_envelopes=True, changes=True, restarts=True, envelope_kind="pigeon"
    )
    example = Example("fly", {"to": "Rome"}, {"at": "Rome"})
    invalid = Example("fly", {"to": 3})
    stream = Example("watch", data=[{"bird": 0}, {"bird": 1}])
    failing = Example("crash", error="EXECUTION_ERROR")
    error_envelope = Example("lose")
    slow = Example("sleep")
    large = Example("flock", data="coo" * 400_000)
    mismatched = Example("count", data="many")
    broken = ({"birds": 0}, {"birds": "many"})
    secrets = ("s3cret",)

    def __init__(self) -> None:
        self.pigeons = Pigeons(self.fault)

    def plugins(self) -> Plugins:
        return self.pigeons.plugin()

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"token": "s3cret"}

    async def restart(self, registry: OperationRegistry) -> None:
        self.pigeons.down = True
        if self.fault != "stays away":
            asyncio.get_running_loop().call_later(0.05, setattr, self.pigeons, "down", False)

    async def change(self, registry: OperationRegistry) -> None:
        if self.fault == "does not follow":
            return
        self.pigeons.names.append("hide")
        for session in self.pigeons.sessions:
            session.changed(self.pigeons.operations(PigeonConfig(token=""), "conformance"))


def names_of(suite: type[Any]) -> list[str]:
    return [name for name, _ in inspect.getmembers(suite, inspect.isfunction) if name.startswith("test_")]


@pytest.mark.parametrize("test", names_of(SourceConformance))
def test_a_source_that_behaves_passes(test: str) -> None:
    getattr(PigeonSuite(), test)()


SOURCE_FAULTS = json.loads(Path(__file__).with_name("source_faults.json").read_text("utf-8"))


@pytest.mark.parametrize("fault", SOURCE_FAULTS)
def test_a_fault_of_a_source_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operad_testing._running.GRACE", 0.05)
    monkeypatch.setattr("operad_testing._sources.POLLS", 5)
    suite = type("Faulty", (PigeonSuite,), {"fault": fault})()
    with pytest.raises((AssertionError, CallError, RuntimeError)):
        getattr(suite, SOURCE_FAULTS[fault])()


@pytest.mark.parametrize(
    ("fault", "first"),
    {
        "leaves a task": "test_what_was_loaded_and_closed_leaves_nothing_behind",
        "own namespace": "test_operations_load_into_the_namespace",
        "logs the token": "test_secrets_are_not_shown",
    }.items(),
)
def test_the_first_test_that_fails_is_named_for_the_fault(
    fault: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operad_testing._running.GRACE", 0.05)
    failed = []
    for name in vars(SourceConformance):  # in the order in which runners take them
        if name.startswith("test_"):
            try:
                getattr(type("Faulty", (PigeonSuite,), {"fault": fault})(), name)()
            except (AssertionError, CallError):
                failed.append(name)
                break
    assert failed == [first]


def test_what_is_not_declared_is_skipped() -> None:
    few = SourceCapabilities(errors=False, cancellation=False, envelope_kind="pigeon")
    members = {"capabilities": few, "invalid": None, "broken": (), "secrets": (), "large": None}
    modest = type("Modest", (PigeonSuite,), members)
    skipped = []
    for test in names_of(SourceConformance):
        try:
            getattr(modest(), test)()
        except SkipTest as skip:
            skipped.append((test, str(skip)))
    assert len(skipped) == 12
    assert all("Modest" in reason for _, reason in skipped)


def test_what_is_declared_needs_an_example() -> None:
    forgetful = type("Forgetful", (PigeonSuite,), {"stream": None})
    with pytest.raises(AssertionError, match="set stream = Example"):
        forgetful().test_a_subscription_yields_envelopes()


def test_a_subscription_that_waits_for_something_to_happen_can_be_stirred() -> None:
    class Quiet(Pigeons):
        def operations(self, config: PigeonConfig, namespace: str) -> list[Operation[..., Any]]:
            doors: list[asyncio.Event] = []

            async def watch(input: dict[str, Any], context: Any) -> AsyncIterator[Any]:
                door = asyncio.Event()
                doors.append(door)
                await door.wait()
                yield {"bird": 0}
                await asyncio.sleep(60)

            async def open_doors(input: dict[str, Any], context: Any) -> None:
                for door in doors:
                    door.set()

            return [
                Operation(OperationSpec(namespace=namespace, name="watch", type="subscription"), watch),
                Operation(OperationSpec(namespace=namespace, name="open"), open_doors),
            ]

    class Stirred(PigeonSuite):
        capabilities = SourceCapabilities(calls=False, subscriptions=True)
        stream = Example("watch", data=[{"bird": 0}])
        example = Example("open")

        def __init__(self) -> None:
            self.pigeons = Quiet()

        async def stir(self, registry: OperationRegistry) -> None:
            while True:
                await asyncio.sleep(0.01)
                await registry.execute("conformance.open")

    Stirred().test_a_subscription_yields_envelopes()
    Stirred().test_leaving_a_subscription_ends_it()


def test_a_test_that_hangs_is_ended() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"did not end within 0\.01 s"):
        run(hang(), timeout=0.01)


def test_a_thread_that_no_cancellation_ends_fails_the_test_and_does_not_hang_it():
    async def endless():
        go_on = threading.Event()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.to_thread(go_on.wait)

    with pytest.raises(AssertionError, match=r"a thread still runs 2 s after the test, at .*threading\.py:\d+"):
        run(endless())


def test_a_function_in_a_thread_returns_or_raises_as_ever():
    async def both():
        assert await asyncio.to_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 7, 0)

    run(both())


# --- envelope kinds ------------------------------------------------------------------------------


def pigeon_kind_suite(meta_type: Any = PigeonMeta, is_error: Any = lambda meta: meta.lost, **members: Any) -> Any:
    def plugins(self: object) -> Plugins:
        return plugins_of(make_plugin("p", operad_envelope_kinds=[EnvelopeKind("pigeon", meta_type, is_error)]))

    defaults = {
        "kind_source": "pigeon",
        "plugins": plugins,
        "capabilities": EnvelopeKindCapabilities(errors=True, binary=True),
        "examples": [meta_type(1), meta_type(2, colour="grey")],
        "error_examples": [meta_type(3, lost=True)],
    }
    return type("PigeonKindSuite", (EnvelopeKindConformance,), {**defaults, **members})()


@pytest.mark.parametrize("test", names_of(EnvelopeKindConformance))
def test_an_envelope_kind_that_behaves_passes(test: str) -> None:
    getattr(pigeon_kind_suite(), test)()


@attrs.define
class MutableMeta(PigeonMeta):
    __setattr__ = object.__setattr__


@attrs.frozen
class ForgetfulMeta:
    source: ClassVar[str] = "pigeon"
    ring_number: int
    colour: str | None = attrs.field(default=None, metadata={"wire": "source"})
    lost: bool = False


@attrs.frozen
class SnakeMeta:
    source: ClassVar[str] = "pigeon"
    ring_number: int = attrs.field(metadata={"wire": "ring_number"})
    colour: str | None = None
    lost: bool = False


KIND_FAULTS: list[tuple[str, Callable[[], Any]]] = [
    ("test_metas_are_immutable_values", lambda: pigeon_kind_suite(MutableMeta)),
    ("test_metas_survive_the_wire", lambda: pigeon_kind_suite(ForgetfulMeta)),
    ("test_wire_names_are_camel_case", lambda: pigeon_kind_suite(SnakeMeta)),
    ("test_failures_are_told_from_successes", lambda: pigeon_kind_suite(is_error=lambda meta: False)),
    ("test_failures_are_told_from_successes", lambda: pigeon_kind_suite(is_error=lambda meta: True)),
    ("test_failures_are_told_from_successes", lambda: pigeon_kind_suite(error_examples=[])),
    ("test_a_plugin_declares_the_kind", lambda: pigeon_kind_suite(kind_source="dove")),
    ("test_metas_survive_the_wire", lambda: pigeon_kind_suite(examples=[], error_examples=[])),
]


@pytest.mark.parametrize(("test", "suite"), KIND_FAULTS)
def test_a_fault_of_an_envelope_kind_is_found(test: str, suite: Callable[[], Any]) -> None:
    with pytest.raises((AssertionError, CallError)):
        getattr(suite(), test)()


# --- whole plugins --------------------------------------------------------------------------------

PLUGIN = """
from operad.plugin import Source, hookimpl
import attrs

@attrs.frozen
class Config: ...

@hookimpl
def operad_sources():
    return [Source("kit", print, Config)]
"""


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PluginConformance]:
    """A suite for a distribution written into a folder on the path, also that of subprocesses."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(
        source: str = PLUGIN, *, requires: str = "operad>=0.1", typed: bool = True, **members: Any
    ) -> PluginConformance:
        package = tmp_path / "operad_kit"
        package.mkdir()
        (package / "__init__.py").write_text(source)
        if typed:
            (package / "py.typed").touch()
        info = tmp_path / "operad_kit-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: operad-kit\nVersion: 1.0\nRequires-Dist: {requires}\n"
        )
        (info / "entry_points.txt").write_text("[operad]\nkit = operad_kit\n")
        monkeypatch.delitem(sys.modules, "operad_kit", raising=False)
        members = {"distribution": "operad-kit", "contributes": {"sources": ["kit"]}, **members}
        suite: PluginConformance = type("KitSuite", (PluginConformance,), members)()
        return suite

    return make


def test_a_plugin_that_behaves_passes(kit: Callable[..., PluginConformance]) -> None:
    suite = kit()
    for test in names_of(PluginConformance):
        getattr(suite, test)()


PLUGIN_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("test_loading_imports_nothing_heavy", {"source": "import pytest\n" + PLUGIN}),
    ("test_loading_prints_nothing", {"source": "print('hello')\n" + PLUGIN}),
    ("test_the_plugin_loads", {"source": "raise RuntimeError"}),
    ("test_the_plugin_loads", {"contributes": {"sources": ["kit", "more"]}}),
    ("test_it_requires_operad", {"requires": "attrs"}),
    ("test_it_requires_operad", {"requires": "operad-openapi>=0.1"}),
    ("test_it_is_typed", {"typed": False}),
]


@pytest.mark.parametrize(("test", "fault"), PLUGIN_FAULTS)
def test_a_fault_of_a_plugin_is_found(
    test: str, fault: dict[str, Any], kit: Callable[..., PluginConformance]
) -> None:
    with pytest.raises(AssertionError):
        getattr(kit(**fault), test)()


def test_an_import_that_is_heavy_is_named_without_what_it_imports_in_turn(
    kit: Callable[..., PluginConformance],
) -> None:
    with pytest.raises(AssertionError, match=r"^import pytest inside the function that needs it\b"):
        kit("import pytest\n" + PLUGIN).test_loading_imports_nothing_heavy()


def test_an_import_by_name_is_found_as_well(kit: Callable[..., PluginConformance]) -> None:
    hidden = "import importlib\nimportlib.import_module('iniconfig')\n"
    with pytest.raises(AssertionError, match=r"^import iniconfig inside"):
        kit(hidden + PLUGIN).test_loading_imports_nothing_heavy()


def test_an_import_may_be_declared_light(kit: Callable[..., PluginConformance]) -> None:
    kit("import iniconfig\n" + PLUGIN, light=["iniconfig"]).test_loading_imports_nothing_heavy()


# --- fakes and the table --------------------------------------------------------------------------


async def test_a_static_source_offers_given_operations_and_changes_them() -> None:
    async def answer(input: Any, context: Any) -> int:
        return 42

    def operation(name: str) -> Operation[..., Any]:
        return Operation(OperationSpec(namespace="s", name=name), answer)

    source, log = StaticSource("static", [operation("one")]), CallLog()
    async with OperationRegistry(plugins_of(source, log)) as registry:
        await registry.load("static")
        assert (await registry.execute("s.one")).data == 42
        source.change([operation("two")])
        assert [spec.id for spec in registry.specs()] == ["s.two"]
        with pytest.raises(CallError):
            await registry.execute("s.one")
    assert [call.operation_id for call in log.started] == ["s.one", "s.one"]
    assert [outcome.error and outcome.error.code for _, outcome in log.finished] == [None, "OPERATION_NOT_FOUND"]


def test_the_support_table_has_a_row_for_each_suite() -> None:
    class Other(SourceConformance):
        source = "other"

    assert support_table([PigeonSuite, Other]).splitlines() == [
        "| | calls | subscriptions | errors | error envelopes | cancellation | changes | restarts | envelope kind |",
        "|---|---|---|---|---|---|---|---|---|",
        "| `other` | yes | – | yes | – | yes | – | – | `local` |",
        "| `pigeon` | yes | yes | yes | yes | yes | yes | yes | `pigeon` |",
    ]
    assert support_table([]) == ""
