"""The sources of a registry as they are, loading one again, and observers that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operad import ConfigError, OperationContext, OperationRegistry, OperationSpec, SourceError
from operad_testing import make_plugin, plugins_of


async def test_states_name_what_is_loaded_and_what_failed_and_a_reload_mends_it(tmp_path: Path) -> None:
    import attrs

    from operad import Operation
    from operad.plugin import Source, SourceSession

    @attrs.frozen
    class Config:
        word: str

    async def answer(input: Any, context: OperationContext) -> str:
        return "x"

    async def load(config: Config, context: Any) -> SourceSession:
        if not (tmp_path / config.word).exists():
            raise SourceError(f"{config.word} is not there")
        spec = OperationSpec(namespace=context.namespace, name=(tmp_path / config.word).read_text())
        return SourceSession([Operation(spec, answer)])

    (tmp_path / "operad.toml").write_text(
        '[sources.a]\ntype = "files"\nword = "one"\n[sources.b]\ntype = "files"\nword = "two"\n'
    )
    (tmp_path / "one").write_text("first")
    plugins = plugins_of(make_plugin("files", operad_sources=[Source("files", load, Config)]))
    async with OperationRegistry.from_config(tmp_path, plugins) as registry:
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
        assert [spec.id for spec in registry.specs()] == ["a.changed", "b.second", "c.changed"]
        assert registry.failures == []
        (tmp_path / "two").unlink()
        await registry.sources.reload("b")
        assert [failure.name for failure in registry.failures] == ["b"]
        with pytest.raises(ConfigError, match='no source "d"'):
            await registry.sources.reload("d")


async def test_observers_see_calls_as_long_as_they_are_there() -> None:
    seen: list[str] = []

    async def inner(input: Any, context: OperationContext) -> int:
        return 1

    async def outer(input: Any, context: OperationContext) -> int:
        return int((await context.env["x.inner"]()).data)

    async with OperationRegistry() as registry:
        registry.register(OperationSpec(namespace="x", name="inner"), inner)
        registry.register(OperationSpec(namespace="x", name="outer"), outer)
        stop = registry.observe(
            lambda call: seen.append(f"> {call.operation_id}"),
            lambda call, outcome: seen.append(f"< {call.operation_id} {outcome.error}"),
        )
        await registry.execute("x.outer")
        stop()
        stop()
        await registry.execute("x.outer")
    assert seen == ["> x.outer", "> x.inner", "< x.inner None", "< x.outer None"]


async def test_a_source_that_is_loaded_again_is_one_source_and_one_that_fails_again_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import attrs

    from operad.plugin import Source, SourceSession

    closed: list[int] = []
    broken = False

    class Counted(SourceSession):
        async def aclose(self) -> None:
            closed.append(id(self))

    @attrs.frozen
    class Config:
        pass

    async def load(config: Config, context: Any) -> SourceSession:
        if broken:
            raise SourceError("it broke")
        return Counted()

    (tmp_path / "operad.toml").write_text('[sources.a]\ntype = "counted"\n')
    plugins = plugins_of(make_plugin("counted", operad_sources=[Source("counted", load, Config)]))
    async with OperationRegistry.from_config(tmp_path, plugins) as registry:
        await registry.sources.reload("a")
        assert (len(registry.sources.states()), len(closed)) == (1, 1)
        broken = True
        for number in (1, 2):
            await registry.sources.reload("a")
            assert caplog.text.count("source a is not loaded: it broke") == number
        assert [state.status for state in registry.sources.states()] == ["failed"]
    assert len(closed) == len(set(closed)) == 2


async def test_the_login_of_a_configured_source_is_made_from_its_table(tmp_path: Path, monkeypatch: Any) -> None:
    import attrs

    from operad.plugin import Source, SourceSession

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
    (tmp_path / "operad.toml").write_text(
        '[sources.a]\ntype = "files"\nnamespace = "n"\ntoken = "${OPERAD_TEST_TOKEN}"\n'
        '[sources.b]\ntype = "bare"\ntoken = "x"\n'
    )
    sources = [Source("files", load, Config, login=login), Source("bare", load, Config)]
    plugins = plugins_of(make_plugin("files", operad_sources=sources))
    registry = OperationRegistry.from_config(tmp_path, plugins)
    assert await registry.source_login("a", "me") == ("s3cret-s3cret", "a", "n", "me")
    with pytest.raises(SourceError) as caught:
        await registry.source_login("a", "nobody")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r'sources\.b: sources of type "bare" know no login'):
        await registry.source_login("b")
    with pytest.raises(ConfigError, match='has no source "c"'):
        await registry.source_login("c")
