"""Sources: loaded whole or not at all, followed, closed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest

import operad
from core.tests.kit import giving, ids, registry_of
from core.tests.kit import op as operation
from operad import (
    AccessControl,
    CallError,
    ErrorCode,
    Identity,
    Operation,
    OperationContext,
    OperationRegistry,
    RegistrationError,
    SourceError,
)
from operad.plugin import Source, SourceContext, SourceSession, Table
from operad_testing import make_plugin, plugins_of

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


@attrs.frozen(kw_only=True)
class Options:
    names: list[str]
    fail: bool = False
    namespace: str = "shop"


class Session(SourceSession):
    def __init__(self, operations: Sequence[Operation[..., Any]], log: list[str], name: str) -> None:
        super().__init__(operations)
        self.log = log
        self.name = name
        self.failure: BaseException | None = None

    async def aclose(self) -> None:
        self.log.append(self.name)
        self._operations = ()
        if self.failure is not None:
            raise self.failure


def op(name: str, namespace: str = "shop", **fields: Any) -> Operation[..., Any]:
    return operation(f"{namespace}.{name}", giving(name), **fields)


class Shop:
    """A source plugin for tests that remembers its sessions."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.closed: list[str] = []
        self.added: list[str] = []
        self.removed: list[str] = []

    async def load(self, config: Options, context: SourceContext) -> SourceSession:
        if config.fail:
            raise OSError("connection refused")
        namespace = context.namespace or config.namespace
        session = Session([op(name, namespace) for name in config.names], self.closed, namespace)
        self.sessions.append(session)
        return session

    def registry(self) -> OperationRegistry:
        plugin = make_plugin(
            "shop",
            operad_sources=[Source("shop", self.load, Options)],
            operad_operation_added=lambda spec: self.added.append(spec.id),
            operad_operation_removed=lambda spec: self.removed.append(spec.id),
        )
        return registry_of(plugins=[plugin])

    @asynccontextmanager
    async def loaded(self, *names: str, **options: Any) -> AsyncIterator[OperationRegistry]:
        async with self.registry() as registry:
            await registry.load("shop", names=list(names), **options)
            yield registry

    async def two(self) -> OperationRegistry:
        registry = self.registry()
        await registry.load("shop", namespace="one", names=["a"])
        await registry.load("shop", namespace="two", names=["b"])
        return registry


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_load_answers_the_specs_and_the_operations_can_be_called(shop: Shop) -> None:
    async with shop.registry() as registry:
        specs = await registry.load("shop", names=["buy", "sell"])
        assert [spec.id for spec in specs] == ["shop.buy", "shop.sell"]
        assert (await registry.execute("shop.buy")).data == "buy"


@pytest.mark.parametrize("again", [False, True])
async def test_a_source_that_is_being_loaded_when_its_registry_closes_is_closed_too(again: bool) -> None:
    closed: list[str] = []
    opening, may_open = asyncio.Event(), asyncio.Event()

    async def load(config: Options, context: SourceContext) -> SourceSession:
        opening.set()
        await may_open.wait()
        return Session([op(name) for name in config.names], closed, "late")

    registry = OperationRegistry(plugins_of(make_plugin("late", operad_sources=[Source("late", load, Options)])))
    if again:  # as `reload` does, of one that is there
        may_open.set()
        await registry.load("late", names=["buy"])
        may_open.clear()
        opening.clear()
        loading = asyncio.create_task(registry.sources.reload("late"))
    else:
        loading = asyncio.create_task(registry.load("late", names=["buy"]))  # type: ignore[arg-type]  # another result
    await opening.wait()
    await registry.aclose()
    may_open.set()
    with pytest.raises(SourceError, match="the registry was closed while"):
        await loading
    assert closed == ["late"] * (1 + again)
    assert ids(registry) == []
    await registry.load("late", names=["sell"])  # a registry that is used again
    assert ids(registry) == ["shop.sell"]
    await registry.aclose()


async def test_a_source_that_lists_again_is_followed(shop: Shop) -> None:
    async with shop.loaded("buy", "sell") as registry:
        shop.added.clear()
        shop.sessions[0].changed([op("buy", description="better"), op("rent")])
        assert ids(registry) == ["shop.buy", "shop.rent"]
        assert registry.specs()[0].description == "better"
        assert (await registry.execute("shop.rent")).data == "rent"
        assert (shop.removed, shop.added) == (["shop.sell", "shop.buy"], ["shop.buy", "shop.rent"])


async def test_a_listing_that_says_the_same_tells_no_observer(shop: Shop) -> None:
    async with shop.loaded("buy") as registry:
        shop.added.clear()
        shop.sessions[0].changed([op("buy")])
        assert (shop.removed, shop.added) == ([], [])
        told: list[int] = []
        registry.on_change(lambda: told.append(1))
        shop.sessions[0].changed(shop.sessions[0].operations)
        assert told == []


async def test_a_new_listing_leaves_alone_what_belongs_to_others(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop.loaded("buy") as registry:
        registry.register(mine := op("mine"))
        registry.register(op("buy", description="replaced"), replace=True)
        with caplog.at_level(logging.WARNING):
            shop.sessions[0].changed([op("mine"), op("new")])
        assert registry.get_spec("shop.mine") is mine.spec
        assert ids(registry) == ["shop.buy", "shop.mine", "shop.new"]
        assert 'source "shop" (shop) offers shop.mine, which belongs to the application' in caplog.text
        assert "left out; give one of them another namespace" in caplog.text
    assert ids(registry) == ["shop.buy", "shop.mine"]


async def test_an_operation_of_a_listing_that_cannot_be_used_leaves_the_others(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop.loaded("buy") as registry:
        shop.sessions[0].changed([object(), op("new")])  # type: ignore[list-item]  # a source at fault
        assert ids(registry) == ["shop.new"]
        assert "cannot be used" in caplog.text


async def test_leaving_closes_the_sources_the_last_one_first_and_removes_their_operations(shop: Shop) -> None:
    async with await shop.two() as registry:
        registry.register(op("local", "mine"))
    assert shop.closed == ["two", "one"]
    assert ids(registry) == ["mine.local"]
    await registry.aclose()
    assert shop.closed == ["two", "one"]


async def test_a_source_that_cannot_be_closed_does_not_keep_the_others_open(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async with await shop.two() as registry:
        shop.sessions[1].failure = OSError("stuck")
    assert shop.closed == ["two", "one"]
    assert ids(registry) == []
    assert "stuck" in caplog.text


async def test_a_cancellation_while_closing_closes_the_others_and_passes_on(shop: Shop) -> None:
    registry = await shop.two()
    shop.sessions[1].failure = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await registry.aclose()
    assert shop.closed == ["two", "one"]


async def test_a_closed_source_can_no_longer_change_the_registry(shop: Shop) -> None:
    async with shop.loaded("buy") as registry:
        pass
    shop.sessions[0].changed([op("late")])
    assert ids(registry) == []


async def test_a_conflict_names_both_owners_loads_nothing_and_closes_the_source(shop: Shop) -> None:
    both = r'(?s)source "shop" \(shop\).*source "shop" \(shop\).*namespace'
    async with shop.loaded("buy") as registry:
        with pytest.raises(RegistrationError, match=both):
            await registry.load("shop", names=["new", "buy"])
        assert ids(registry) == ["shop.buy"]
        assert shop.closed == ["shop"]


@pytest.mark.parametrize(("options", "error", "says"), TABLES["a_source_that_cannot_be_loaded_says_why"])
async def test_a_source_that_cannot_be_loaded_says_why_and_is_closed(
    shop: Shop, options: dict[str, Any], error: str, says: str
) -> None:
    async with shop.registry() as registry:
        with pytest.raises(getattr(operad, error), match=says):
            await registry.load("shop", **options)
        assert ids(registry) == []
    assert shop.closed == ["shop"] * len(shop.sessions)


async def test_a_source_can_be_normalised_differently(caplog: pytest.LogCaptureFixture) -> None:
    async def load(config: Options, context: SourceContext) -> SourceSession:
        return SourceSession([operation(f"{context.namespace}.n", giving("7"), output_schema={"type": "integer"})])

    plugin = make_plugin("numbers", operad_sources=[Source("numbers", load, Options)])
    async with registry_of(plugins=[plugin]) as registry:
        await registry.load("numbers", namespace="cast", names=[])
        await registry.load("numbers", namespace="raw", names=[], normalize="off", on_mismatch="ignore")
        await registry.load("numbers", namespace="strict", names=[], normalize="off", on_mismatch="raise")
        assert (await registry.execute("cast.n")).data == 7
        assert (await registry.execute("raw.n")).data == "7"
        with pytest.raises(CallError, match="does not match its output schema"):
            await registry.execute("strict.n")
    assert not caplog.records


# --- requirements ------------------------------------------------------------------------------------


async def denied(registry: OperationRegistry, operation_id: str, *scopes: str) -> bool:
    try:
        await registry.execute(operation_id, {}, OperationContext(identity=Identity("ann", scopes)))
    except CallError as error:
        assert error.code == ErrorCode.ACCESS_DENIED  # noqa: PT017  # both outcomes are right, others are not
        return True
    return False


@pytest.mark.parametrize("access", [{"required_scopes": ["s"]}, AccessControl(required_scopes=["s"])])
async def test_requirements_for_a_whole_source(shop: Shop, access: Any) -> None:
    async with shop.loaded("buy", "sell", access=access) as registry:
        assert await denied(registry, "shop.buy")
        assert await denied(registry, "shop.sell")
        assert not await denied(registry, "shop.buy", "s")


async def test_requirements_by_pattern_the_first_that_fits_counts(shop: Shop) -> None:
    access = {"sel*": {"required_scopes": ["one"]}, "shop.*": {"required_scopes": ["two"]}}
    async with shop.loaded("buy", "sell", access=access) as registry:
        assert not await denied(registry, "shop.sell", "one")
        assert await denied(registry, "shop.sell", "two")
        assert not await denied(registry, "shop.buy", "two")


async def test_requirements_hold_for_operations_that_come_later(shop: Shop) -> None:
    async with shop.loaded("buy", access={"required_scopes": ["s"]}) as registry:
        shop.sessions[0].changed([op("new")])
        assert await denied(registry, "shop.new")


async def test_a_pattern_that_fits_nothing_is_reported(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async with shop.loaded("buy", access={"bye": {"required_scopes": ["s"]}}):
        assert 'access pattern "bye" matches no operation' in caplog.text


async def test_a_source_is_told_of_the_operation_that_alone_will_be_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str | None] = []

    async def load(config: Options, context: SourceContext) -> SourceSession:
        told.append(context.operation)
        return SourceSession([op(name) for name in config.names if context.operation in (None, f"shop.{name}")])

    plugins = plugins_of(make_plugin("told", operad_sources=[Source("shop", load, Options)]))
    (tmp_path / "operad.toml").write_text(
        '[sources.shop]\ntype = "shop"\nnames = ["buy", "sell"]\naccess = { "sell" = { required_scopes = ["s"] } }\n'
    )
    for name, count in ((None, 2), ("shop.buy", 1)):
        async with OperationRegistry.from_config(tmp_path, plugins, sources=()) as registry:
            await registry.load_configured(["shop"], operation=name)
            assert len(registry.specs()) == count
    assert told == [None, "shop.buy"]
    assert "matches no operation" not in caplog.text  # of those that were left out


def test_a_path_of_an_unknown_user_is_an_error() -> None:
    with pytest.raises(operad.ConfigError, match="~no-such-user/a: no such user"):
        SourceContext(plugins=operad.Plugins()).path("~no-such-user/a")


def test_a_table_that_changes_calls_needs_a_plugin_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "operad.toml").write_text('\n[[rules]]\nid = "a"\n')
    with pytest.raises(
        operad.ConfigError, match=r"no loaded plugin reads \[rules\].*operad-rules @ .*toml:2: rules"
    ):
        OperationRegistry.from_config(tmp_path, operad.Plugins())
    for name, fails in (("rules", False), ("credentials", True)):
        reads = make_plugin("p", operad_tables=lambda name=name: [Table(name, Options)])
        with pytest.raises(operad.ConfigError) if fails else nullcontext():
            OperationRegistry.from_config(tmp_path, plugins_of(reads))
