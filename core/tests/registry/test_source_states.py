"""The sources of a registry as they are, and loading one again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.tests.kit import error_of, giving, ids, op, until
from operad import CallError, ConfigError, OperationContext, OperationRegistry, SourceError
from operad.plugin import Source, SourceSession
from operad_testing import make_plugin, plugins_of


@attrs.frozen
class Empty:
    pass


def configured(folder: Path, text: str, *sources: Source) -> OperationRegistry:
    (folder / "operad.toml").write_text(text)
    return OperationRegistry.from_config(folder, plugins_of(make_plugin("p", operad_sources=sources)))


async def test_states_name_what_is_loaded_and_what_failed_and_a_reload_mends_it(tmp_path: Path) -> None:
    @attrs.frozen
    class Config:
        word: str

    async def load(config: Config, context: Any) -> SourceSession:
        if not (tmp_path / config.word).exists():
            raise SourceError(f"{config.word} is not there")
        return SourceSession([op(f"{context.namespace}.{(tmp_path / config.word).read_text()}", giving("x"))])

    text = '[sources.a]\ntype = "files"\nword = "one"\n[sources.b]\ntype = "files"\nword = "two"\n'
    (tmp_path / "one").write_text("first")
    async with configured(tmp_path, text, Source("files", load, Config)) as registry:
        await registry.load("files", namespace="c", word="one")
        told = [(s.name, s.type, s.status, s.operations, s.error) for s in registry.sources.states()]
        assert told == [
            ("a", "files", "loaded", 1, None),
            ("b", "files", "failed", 0, "two is not there"),
            ("c", "files", "loaded", 1, None),
        ]
        (tmp_path / "two").write_text("second")
        (tmp_path / "one").write_text("changed")
        for name in "abc":
            await registry.sources.reload(name)
        assert ids(registry) == ["a.changed", "b.second", "c.changed"]
        assert registry.failures == []
        (tmp_path / "two").unlink()
        await registry.sources.reload("b")
        assert registry.failures == []
        state = registry.sources.states()[1]
        assert (state.name, state.status, state.operations, state.error) == ("b", "stale", 1, "two is not there")
        assert (await registry.execute("b.second")).data == "x"
        (tmp_path / "two").write_text("third")
        await registry.sources.reload("b")
        assert [state.status for state in registry.sources.states()] == ["loaded"] * 3
        assert ids(registry) == ["a.changed", "b.third", "c.changed"]
        with pytest.raises(ConfigError, match='unknown source "d"'):
            await registry.sources.reload("d")


async def test_a_source_that_is_loaded_again_is_one_source_and_one_that_fails_again_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[int] = []
    broken = False

    class Counted(SourceSession):
        async def aclose(self) -> None:
            closed.append(id(self))

    async def load(config: Empty, context: Any) -> SourceSession:
        if broken:
            raise SourceError("it broke")
        return Counted()

    source = Source("counted", load, Empty)
    async with configured(tmp_path, '[sources.a]\ntype = "counted"\n', source) as registry:
        await registry.sources.reload("a")
        await until(lambda: len(closed) == 1)
        assert len(registry.sources.states()) == 1
        broken = True
        for number in (1, 2):
            await registry.sources.reload("a")
            assert caplog.text.count("source a is not loaded: it broke") == number
        assert [state.status for state in registry.sources.states()] == ["stale"]
    assert len(closed) == len(set(closed)) == 2


async def test_the_login_of_a_configured_source_is_made_from_its_table(tmp_path: Path, monkeypatch: Any) -> None:
    @attrs.frozen
    class Config:
        token: str

    async def load(config: Config, context: Any) -> SourceSession:
        return SourceSession()

    async def login(config: Config, context: Any, account: str | None) -> Any:
        if account == "nobody":
            raise SourceError(f"{config.token} is of nobody")
        return config.token, context.name, context.namespace, account

    monkeypatch.setenv("OPERAD_TEST_TOKEN", "s3cret-s3cret")
    text = (
        '[sources.a]\ntype = "files"\nnamespace = "n"\ntoken = "${OPERAD_TEST_TOKEN}"\n'
        '[sources.b]\ntype = "bare"\ntoken = "x"\n'
    )
    sources = Source("files", load, Config, login=login), Source("bare", load, Config)
    registry = configured(tmp_path, text, *sources)
    assert await registry.source_login("a", "me") == ("s3cret-s3cret", "a", "n", "me")
    with pytest.raises(SourceError) as caught:
        await registry.source_login("a", "nobody")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r'sources\.b: sources of type "bare" do not support a login'):
        await registry.source_login("b")
    with pytest.raises(ConfigError, match='has no source "c"'):
        await registry.source_login("c")


class Opened(SourceSession):
    """A session whose operations fail once it is closed."""

    def __init__(self, number: int, gate: asyncio.Event) -> None:
        async def answer(input: Any, context: OperationContext) -> int:
            await (gate.wait() if input.get("wait") else asyncio.sleep(0))
            assert not self.closed
            return number

        async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
            yield number
            await gate.wait()
            assert not self.closed
            yield number

        self.closed = False
        super().__init__([op("a.get", answer, type="query"), op("a.count", count, type="subscription")])

    async def aclose(self) -> None:
        self.closed = True


async def loaded_again(**options: Any) -> tuple[OperationRegistry, list[Opened], asyncio.Event]:
    """Return a registry with a source, its sessions so far, and the gate that ends calls that wait."""
    sessions: list[Opened] = []
    gate = asyncio.Event()

    async def load(config: Empty, context: Any) -> SourceSession:
        await asyncio.sleep(0.001)
        if len(sessions) == 20:
            raise SourceError("no more")
        sessions.append(Opened(len(sessions), gate))
        return sessions[-1]

    registry = OperationRegistry(plugins_of(make_plugin("opened", operad_sources=[Source("opened", load, Empty)])))
    await registry.load("opened", namespace="a", **options)
    return registry, sessions, gate


@pytest.mark.parametrize("is_intercepted", [False, True])
async def test_no_call_fails_while_a_source_is_loaded_again(is_intercepted: bool) -> None:
    registry, sessions, _ = await loaded_again()
    if is_intercepted:

        async def tap(call: Any, proceed: Any) -> Any:
            await asyncio.sleep(0)
            return await proceed(call)

        registry.use(tap)
    seen: set[int] = set()

    async def caller() -> None:
        for _ in range(100):
            seen.add((await registry.execute("a.get")).data)

    async with registry, asyncio.TaskGroup() as group:
        callers = [group.create_task(caller()) for _ in range(8)]
        for _ in range(10):
            await registry.sources.reload("a")
        await asyncio.gather(*callers)
        await until(lambda: [session.closed for session in sessions] == [True] * 10 + [False])
    assert len(seen) > 1


async def test_calls_and_streams_in_progress_end_with_the_source_that_they_began_with() -> None:
    registry, sessions, gate = await loaded_again()
    async with registry:
        call = asyncio.create_task(registry.execute("a.get", {"wait": True}))
        async with registry.subscribe("a.count") as stream:
            first = await anext(stream)
            await registry.sources.reload("a")
            assert (await registry.execute("a.get")).data == 1
            assert not sessions[0].closed
            gate.set()
            assert [first.data, (await anext(stream)).data, (await call).data] == [0, 0, 0]
        await until(lambda: sessions[0].closed)


async def test_a_registry_that_is_closed_closes_what_was_replaced_at_once() -> None:
    registry, sessions, gate = await loaded_again()
    call = asyncio.create_task(registry.execute("a.get", {"wait": True}))
    await asyncio.sleep(0)
    await registry.sources.reload("a")
    await registry.aclose()
    assert [session.closed for session in sessions] == [True, True]
    gate.set()
    with pytest.raises(CallError):
        await call


async def test_a_source_loaded_from_python_that_fails_again_says_so_and_stays() -> None:
    registry, sessions, _ = await loaded_again()
    async with registry:
        sessions += [sessions[0]] * 19
        with pytest.raises(SourceError, match="no more"):
            await registry.sources.reload("a")
        (state,) = registry.sources.states()
        assert (state.status, state.error, state.operations) == ("stale", "no more", 2)
        assert (await registry.execute("a.get")).data == 0


async def test_an_exclusive_source_is_closed_before_it_is_opened_again() -> None:
    registry, sessions, _ = await loaded_again(exclusive=True)
    async with registry:
        reload = asyncio.create_task(registry.sources.reload("a"))
        await until(lambda: sessions[0].closed)
        with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
            await registry.execute("a.get")
        await reload
        assert (await registry.execute("a.get")).data == 1
        assert len(registry.sources.states()) == 1


async def test_an_unknown_id_names_the_source_that_is_empty(tmp_path: Path) -> None:
    async def load(config: Empty, context: Any) -> SourceSession:
        return SourceSession([])

    async with configured(tmp_path, '[sources.a]\ntype = "f"\n', Source("f", load, Empty)) as registry:
        for id, said in (("a.get", "; source [sources.a] has no operations at present"), ("b.get", "")):
            assert str(await error_of(registry.execute(id))).endswith(f'"{id}" not found{said}')


TWO = '[sources.a]\ntype = "f"\n[sources.b]\ntype = "f"\n'


async def test_an_id_that_a_source_holds_back_is_refused_with_its_reason(tmp_path: Path) -> None:
    class Holding(SourceSession):
        held = {"b.get": "accept the changed operation first"}

    async def load(config: Empty, context: Any) -> SourceSession:
        return Holding() if context.name == "b" else SourceSession()

    async with configured(tmp_path, TWO, Source("f", load, Empty)) as registry:
        with pytest.raises(CallError, match="^ACCESS_DENIED: accept the changed operation first$"):
            await registry.execute("b.get")
        with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
            await registry.execute("b.put")


async def test_an_unknown_id_names_the_source_that_failed_and_why_but_not_to_peers(tmp_path: Path) -> None:
    async def load(config: Empty, context: Any) -> SourceSession:
        raise SourceError(f"{context.name}.json is not there")

    async def outer(input: Any, context: OperationContext) -> Any:
        return await context.env["b.get"]()

    async with configured(tmp_path, TWO, Source("f", load, Empty)) as registry:
        error = await error_of(registry.execute("b.get"))
        assert str(error) == (
            'OPERATION_NOT_FOUND: operation "b.get" not found; source [sources.b] is not loaded: b.json is not there'
        )
        assert "b.json" not in str(error.to_wire())
        with pytest.raises(CallError, match="these sources are not loaded: a, b"):
            await registry.execute("c.get")
        await registry.sources.reload("b")
        assert [failure.name for failure in registry.failures] == ["a", "b"], "each is tried by itself"
        registry.register(op("c.outer", outer))
        assert "b.json" not in str((await error_of(registry.execute("c.outer"))).to_wire())
