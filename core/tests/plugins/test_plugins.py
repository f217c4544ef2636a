"""The plugins of an application: registering, conflicts, roll-back, hooks, looking up."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import attrs
import pytest

from operad import (
    EnvelopeKind,
    LocalResponseMeta,
    OperationRegistry,
    OperationSpec,
    PluginError,
    Plugins,
    hookimpl,
)
from operad.errors import ConfigError, SourceError
from operad.plugin import Server, Source, SourceContext, SourceSession, TransportFactory
from operad.transports import Capabilities
from operad_testing import plugins_of


@attrs.frozen
class Config:
    path: str = ""


async def load(config: Any, context: SourceContext) -> SourceSession:
    return SourceSession()


async def serve(registry: Any, config: Any) -> None:
    return None


@attrs.frozen
class PigeonMeta:
    source: ClassVar[str] = "pigeon"
    ring: int = 0


class Nowhere:
    capabilities = Capabilities()

    async def open(self, on_event: Any, on_link: Any) -> Any: ...


def all_of_pigeons() -> Plugins:
    """Return plugins of which one contributes something to every hook."""
    plugins = Plugins()
    plugins.register(contributing_all(), "pigeon", distribution="operad-pigeon", version="1.2")
    return plugins


def unmarked(**members: Any) -> ModuleType:
    module = ModuleType("pigeon.plugin")
    vars(module).update(members)
    return module


def plugin(**members: Any) -> ModuleType:
    """A plugin module; functions are marked as hook implementations."""
    return unmarked(**{name: hookimpl(it) if callable(it) else it for name, it in members.items()})


def pigeon_source(name: str = "pigeon") -> Source:
    return Source(name, load, Config)


def contributing_all() -> ModuleType:
    return plugin(
        operad_envelope_kinds=lambda: [EnvelopeKind("pigeon", PigeonMeta)],
        operad_sources=lambda: [pigeon_source()],
        operad_transports=lambda: [TransportFactory(("loft", "lofts"), lambda url, **options: Nowhere())],
        operad_servers=lambda: [Server("loft", serve, Config)],
        operad_operation_added=lambda spec: None,
    )


def assert_pristine(plugins: Plugins) -> None:
    assert not any((plugins.sources, plugins.servers, plugins.transports))
    assert plugins.envelope_kinds.sources == ("local",)
    assert not plugins.implementations("operad_sources")


def refusal(plugins: Plugins, module: object, **origin: Any) -> str:
    with pytest.raises(PluginError) as caught:
        plugins.register(module, **origin)
    record = plugins.records[-1]
    assert record.error is not None
    assert record.error in str(caught.value)
    return record.error


def test_the_record_says_what_a_plugin_contributes() -> None:
    plugins = all_of_pigeons()
    (record,) = plugins.records
    assert (record,) == tuple(plugins)
    assert record.to_wire() == {
        "name": "pigeon",
        "distribution": "operad-pigeon",
        "version": "1.2",
        "status": "loaded",
        "error": None,
        "contributes": {
            "sources": ["pigeon"],
            "envelope_kinds": ["pigeon"],
            "transports": ["loft", "lofts"],
            "servers": ["loft"],
            "hooks": ["operad_operation_added"],
        },
    }


def test_what_plugins_contribute_is_read_only() -> None:
    with pytest.raises(TypeError):
        all_of_pigeons().sources["other"] = pigeon_source()  # type: ignore[index]  # what the test is about


def test_two_applications_do_not_share_plugins() -> None:
    other = Plugins()
    all_of_pigeons()
    assert_pristine(other)


def broken_source() -> ModuleType:
    """Return a plugin that is refused, because what it returns is no list of sources."""
    return plugin(operad_sources=lambda: [3])


def test_an_object_can_be_a_plugin() -> None:
    class Observing:
        @hookimpl
        def operad_operation_added(self, spec: OperationSpec) -> None:
            seen.append(spec.id)

    seen: list[str] = []
    plugins = plugins_of(Observing())
    assert plugins.records[0].name == "Observing"
    OperationRegistry(plugins).register_spec(OperationSpec(namespace="a", name="b"))
    assert seen == ["a.b"]


async def asynchronous() -> list[Source]:
    return []


def wrapper() -> Any:
    return (yield)


LOUD = TransportFactory(("LOFT",), Nowhere)
LOCAL = EnvelopeKind("local", LocalResponseMeta)


def beside(module: ModuleType, **names: Any) -> ModuleType:
    vars(module).update(names)
    return module


UNUSABLE = {
    "beside a mark": (beside(plugin(operad_commands=lambda: 1), operad_sources=lambda: 1), "is not marked"),
    "beside a number": (beside(plugin(), operad_a=1, operad_sources=lambda: 1), "is not marked"),
    "beside an optional one": (
        unmarked(operad_aa=hookimpl(lambda: 1, optionalhook=True), operad_sources=hookimpl(wrapper, wrapper=True)),
        "wrapper",
    ),
    "misspelt": (plugin(operad_sorces=lambda: None), "operad_sorces is not a hook.*operad_sources"),
    "no known name": (plugin(operad_zzz=lambda: None), "operad_zzz is not a hook.*operad_envelope_kinds"),
    "without the mark": (unmarked(operad_sources=lambda: None), "operad_sources is not marked"),
    "misspelt, without the mark": (unmarked(operad_sourcs=lambda: None), "did you mean operad_sources"),
    "a list": (unmarked(operad_sources=[]), "operad_sources must be a function, got"),
    "None": (unmarked(operad_sources=None), "operad_sources must be a function, got"),
    "an object": (unmarked(operad_sources=SimpleNamespace()), "operad_sources must be a function, got"),
    "an unknown argument": (plugin(operad_sources=lambda verbose: []), "verbose"),
    "a wrapper": (unmarked(operad_sources=hookimpl(wrapper, wrapper=True)), "wrapper"),
    "asynchronous": (plugin(operad_sources=asynchronous), "plain def"),
    "a scheme in upper case": (plugin(operad_transports=lambda: [LOUD]), "lower case"),
    "the kind of the core": (plugin(operad_envelope_kinds=lambda: [LOCAL]), "belongs to the core"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_hook_that_cannot_be_used_is_an_error_that_says_why(case: str) -> None:
    module, says = UNUSABLE[case]
    refused(says, module, "conflict" if case == "the kind of the core" else "failed")


@pytest.mark.parametrize("module", ["hookspecs"])  # `tools/mutants.py` finds the test by the name of the module
def test_a_plugin_for_the_first_version_of_the_api_is_loaded(module: str) -> None:
    assert plugins_of(plugin(operad_api_version=1)).records[0].status == "loaded"


@pytest.mark.parametrize("version", [2, 0, "1", None, 1.5])
def test_a_plugin_for_another_api_version_is_incompatible(version: object) -> None:
    module = plugin(operad_api_version=version, operad_sources=lambda: [pigeon_source()])
    refused(f"expected 1, got {re.escape(repr(version))}", module, "incompatible")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (pigeon_source, "got function"),
        (pigeon_source(), "got Source"),
        (["pigeon"], "got a list with str"),
        (3, "got int"),
        ("pigeon", "got a list with str"),
        ([pigeon_source(), pigeon_source()], "twice"),
        ([pigeon_source("")], "a name must be"),
        ([pigeon_source("two words")], "a name must be"),
        ([Source(3, load, Config)], "a name must be"),  # type: ignore[arg-type]  # what the test is about
    ],
)
def test_a_hook_that_returns_something_else_is_an_error(returned: Any, says: str) -> None:
    refused(f"operad_sources.*{says}", plugin(operad_sources=lambda: returned))


def one_source() -> Iterator[Source]:
    yield pigeon_source()


@pytest.mark.parametrize(
    ("module", "contributes"),
    [
        (unmarked(operad_of_the_future=hookimpl(lambda: None, optionalhook=True)), {}),
        (unmarked(operad_version="3", operad_pigeon=ModuleType("operad_pigeon"), operad_helper=lambda: None), {}),
        (plugin(operad_sources=lambda: None), {}),
        (plugin(operad_sources=one_source), {"sources": ("pigeon",)}),
    ],
    ids=["optional hook", "names that begin like a hook", "no result", "a generator"],
)
def test_what_a_plugin_may_have(module: ModuleType, contributes: dict[str, Any]) -> None:
    record = Plugins().register(module)
    assert (record.status, record.contributes) == ("loaded", contributes)


def test_a_hook_may_take_fewer_arguments() -> None:
    seen = []
    plugins = plugins_of(plugin(operad_call_finished=lambda outcome: seen.append(outcome)))
    (call,) = plugins.implementations("operad_call_finished")
    call(call="c", outcome="o")
    assert seen == ["o"]


@pytest.mark.parametrize("raised", [RuntimeError("no loft"), SystemExit(2), RecursionError(), GeneratorExit()])
def test_a_hook_that_raises_takes_everything_of_its_plugin_along(raised: BaseException) -> None:
    def operad_servers() -> Any:
        raise raised

    refused(type(raised).__name__, beside(contributing_all(), operad_servers=hookimpl(operad_servers)))


def test_a_keyboard_interrupt_is_not_a_failed_plugin() -> None:
    def operad_sources() -> Any:
        raise KeyboardInterrupt

    plugins = Plugins()
    with pytest.raises(KeyboardInterrupt):
        plugins.register(plugin(operad_sources=operad_sources))
    assert_pristine(plugins)


def test_a_plugin_that_was_refused_can_be_registered_once_it_is_mended() -> None:
    module = broken_source()
    plugins = Plugins()
    refusal(plugins, module)
    module.operad_sources = hookimpl(lambda: [pigeon_source()])  # type: ignore[attr-defined]  # made by plugin()
    assert plugins.register(module).status == "loaded"
    assert "pigeon" in plugins.sources


@pytest.mark.parametrize(
    ("hook", "item", "claim"),
    [
        ("operad_sources", pigeon_source(), 'source "pigeon"'),
        ("operad_envelope_kinds", EnvelopeKind("pigeon", PigeonMeta), 'envelope kind "pigeon"'),
        ("operad_servers", Server("loft", serve, Config), 'server "loft"'),
        ("operad_transports", TransportFactory(("roost", "lofts"), Nowhere), 'transport "lofts"'),
    ],
)
def test_a_conflict_names_both_sides_and_leaves_the_first(hook: str, item: Any, claim: str) -> None:
    plugins = all_of_pigeons()
    before = (dict(plugins.sources), dict(plugins.servers), dict(plugins.transports))
    called = plugins.implementations(hook)
    error = refusal(plugins, plugin(**{hook: lambda: [item]}), name="dove", distribution="dove", version="0.1")
    assert plugins.records[1].status == "conflict"
    assert all(part in error for part in (claim, '"pigeon" (operad-pigeon 1.2)', '"dove" (dove 0.1)'))
    assert (plugins.sources, plugins.servers, plugins.transports) == before
    assert len(plugins.implementations(hook)) == len(called)


def test_the_same_plugin_twice_is_a_conflict() -> None:
    module = contributing_all()
    plugins = plugins_of(module)
    assert "loaded already" in refusal(plugins, module, name="again")
    assert plugins.records[0].status == "loaded"
    assert "pigeon" in plugins.sources


def test_two_plugins_of_one_name_are_a_conflict_unless_their_distributions_differ() -> None:
    plugins = Plugins()
    plugins.register(plugin(), "main", distribution="one")
    assert plugins.register(plugin(), "main", distribution="two").status == "loaded"
    assert "rename" in refusal(plugins, plugin(), name="main", distribution="two")


def test_a_plugin_object_need_not_be_hashable() -> None:
    @attrs.define
    class Unhashable:
        value: int = 1

        @hookimpl
        def operad_sources(self) -> list[Source]:
            return [pigeon_source()]

    assert "pigeon" in plugins_of(Unhashable()).sources


def test_implementations_run_in_the_order_of_loading_within_first_and_last() -> None:
    plugins = Plugins()
    seen: list[str] = []
    for name in ("last", "b", "c", "first"):
        mark = hookimpl(tryfirst=name == "first", trylast=name == "last")
        plugins.register(unmarked(operad_operation_added=mark(lambda spec, name=name: seen.append(name))), name)
    for implementation in plugins.implementations("operad_operation_added"):
        implementation(spec=None)
    assert seen == ["first", "b", "c", "last"]


@pytest.mark.parametrize(
    ("source", "version", "says"),
    [
        ("openapi", "9", r'"x" \(operad-openapi 9\) is not loaded: .*list of Source'),
        ("grpc", None, r'may offer it: "x" \(operad-openapi of unknown version\)'),
    ],
    ids=["because it is broken", "if nobody offers it"],
)
def test_what_is_missing_names_the_plugin_that_is_not_loaded(source: str, version: Any, says: str) -> None:
    plugins = Plugins()
    refusal(plugins, broken_source(), name="x", distribution="operad-openapi", version=version)
    with pytest.raises(PluginError, match=says):
        plugins.source(source)


def no_loft(*_: Any) -> None:
    raise RuntimeError("no loft")


def test_a_plugin_that_fails_to_register_operations_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    plugins = Plugins()
    broken = plugin(operad_register_operations=lambda registry: no_loft())
    plugins.register(broken, "a", distribution="operad-a", version="1")
    fly = OperationSpec(namespace="pigeon", name="fly")
    plugins.register(plugin(operad_register_operations=lambda registry: registry.register_spec(fly)), "b")
    assert OperationRegistry(plugins).specs() == (fly,)
    assert '"a" (operad-a 1)' in caplog.text
    assert "no loft" in caplog.text


def test_a_plugin_that_fails_to_add_commands_leaves_the_others() -> None:
    plugins = Plugins()
    plugins.register(plugin(operad_commands=lambda cli: no_loft()), "a")
    plugins.register(plugin(operad_commands=lambda cli: cli.append("fly")), "b")
    cli: list[str] = []
    (error,) = plugins.add_commands(cli)
    assert cli == ["fly"]
    assert 'plugin "a": operad_commands raised RuntimeError: no loft' in str(error)


# --- looking up ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "install"),
    [
        (lambda plugins: plugins.source("openapi"), "pip install operad-openapi"),
        (lambda plugins: plugins.server("mcp"), "pip install operad-mcp"),
        (lambda plugins: plugins.transport("nats://127.0.0.1"), "pip install operad-nats"),
    ],
)
def test_what_is_missing_says_what_to_install(look: Any, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(PluginError, match=install):
        look(Plugins())


def refused(says: str, module: object, status: str = "failed") -> None:
    """Check that a plugin is refused for this reason, and leaves nothing behind."""
    plugins = Plugins()
    assert re.search(says, refusal(plugins, module))
    assert plugins.records[0].status == status
    assert_pristine(plugins)


def test_what_is_missing_although_it_is_installed_says_how_to_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda distribution: "0.1.0")
    says = r"openapi is installed but not loaded: use OperationRegistry\(load_plugins\(\)\) \(known: none\)"
    with pytest.raises(PluginError, match=says):
        Plugins().source("openapi")


def test_a_hook_is_checked_also_if_another_plugin_has_it() -> None:
    plugins = all_of_pigeons()
    assert "wrapper" in refusal(plugins, unmarked(operad_sources=hookimpl(wrapper, wrapper=True)), name="late")
    assert re.fullmatch(r"Plugins\(.*: loaded, late: failed\)", repr(plugins))


def test_what_is_missing_and_nearly_known_says_what_was_meant() -> None:
    with pytest.raises(PluginError, match='did you mean "pigeon"'):
        all_of_pigeons().source("pidgeon")


def test_a_broken_plugin_states_how_to_leave_it_out_if_it_was_installed() -> None:
    error = refusal(Plugins(), broken_source(), name="x", distribution="operad-x")
    assert error.endswith("; upgrade operad-x, report it to its author, or disable it: OPERAD_DISABLE_PLUGINS=x")
    assert refusal(Plugins(), broken_source(), name="x").endswith("got a list with int")


def test_a_transport_is_chosen_by_its_scheme_in_any_case() -> None:
    plugins = all_of_pigeons()
    assert isinstance(plugins.transport("LOFT://roof"), Nowhere)
    with pytest.raises(PluginError, match="scheme://"):
        plugins.transport("roof")


def test_a_transport_factory_that_fails_is_named_with_its_plugin() -> None:
    def create(url: str) -> Any:
        raise ConfigError("no roof given") if url == "loft://" else KeyError("roof")

    plugins = Plugins()
    plugins.register(plugin(operad_transports=lambda: [TransportFactory(("loft",), create)]), "pigeon")
    named = 'transport "loft" of plugin "pigeon" raised KeyError'
    for url, options, error, says in (
        ("loft://a", {}, PluginError, named),
        ("loft://a", {"unknown": True}, PluginError, "TypeError"),
        ("loft://", {}, ConfigError, "no roof given"),
    ):
        with pytest.raises(error, match=says):
            plugins.transport(url, **options)


# --- sources ------------------------------------------------------------------------------------


def test_a_config_type_may_be_a_function_that_is_asked_when_it_is_needed() -> None:
    asked = []

    def config_type() -> type[Any]:
        asked.append(1)
        return Config

    source, server = Source("pigeon", load, config_type), Server("pigeon", serve, config_type)
    assert not asked
    assert source.config_type is server.config_type is Config
    with pytest.raises(TypeError, match='"pigeon": config_type must be an attrs class, got 5'):
        assert Source("pigeon", load, lambda: 5).config_type  # type: ignore[arg-type,return-value]  # as without types


@pytest.mark.parametrize("config_type", [dict, int, None, Config()])
def test_a_config_type_has_to_be_an_attrs_class(config_type: Any) -> None:
    for made in (lambda: Source("pigeon", load, config_type), lambda: Server("pigeon", serve, config_type)):
        with pytest.raises(TypeError, match='"pigeon": config_type must be an attrs class'):
            made()


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (KeyError("loft"), r"source \"pigeon\" raised KeyError: 'loft' at .*test_plugins\.py:\d+"),
        ([], "must return a SourceSession, got list"),
    ],
    ids=["it raises", "it returns no session"],
)
async def test_a_source_that_makes_no_session_becomes_a_source_error(result: Any, says: str) -> None:
    async def load(config: Any, context: SourceContext) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(SourceError, match=says):
        await Source("pigeon", load, Config).open(Config(), SourceContext(plugins=Plugins()))


async def test_a_session_need_not_inherit() -> None:
    session: Any = SimpleNamespace(operations=(), on_change=lambda callback: None, aclose=lambda: None)

    async def duck(config: Any, context: SourceContext) -> SourceSession:
        return session  # type: ignore[no-any-return]  # any object with the three members will do

    assert await Source("pigeon", duck, Config).open(Config(), SourceContext(plugins=Plugins())) is session


def test_threads_that_ask_a_fresh_object_at_the_same_time_share_its_hooks() -> None:
    plugins = Plugins()

    def register(number: int) -> str:
        return plugins.register(plugin(operad_operation_added=lambda spec: None), str(number)).status

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(register, range(4))) == ["loaded"] * 4
    assert len(plugins.implementations("operad_operation_added")) == 4


def test_the_options_of_a_transport_are_published_if_it_names_their_class() -> None:
    options = attrs.make_class("Options", ["a"])
    for given, found in ((None, None), (options, options), (lambda: options, options)):
        assert TransportFactory("x", Nowhere, given).config_type is found
