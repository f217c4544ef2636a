"""operad.toml: found, read, checked; variables filled in; secrets nowhere else."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import attrs
import pytest

from core.tests.kit import giving, ids, op, spec
from operad import CallError, ConfigError, OperationRegistry, SourceError
from operad.config.reading import load_configuration
from operad.config.structuring import structure
from operad.config.variables import Variables
from operad.plugin import Source, SourceContext, SourceSession
from operad_testing import make_plugin, plugins_of

TABLES = json.loads(Path(__file__).with_name("file.json").read_text("utf-8"))

TOKEN = "s3cr3t-t0k3n"


@attrs.frozen(kw_only=True)
class Auth:
    kind: Literal["bearer", "basic"] = "bearer"
    token: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class Options:
    path: str = "."
    auth: Auth | None = None
    fail: bool = False
    leak: bool = False
    refused: bool = False


class Address(NamedTuple):
    host: str
    port: int


async def load(config: Options, context: SourceContext) -> SourceSession:
    token = config.auth.token if config.auth else None
    if config.fail:
        try:
            raise OSError(f"401 for {token}")
        except OSError as error:
            raise SourceError(f"cannot log in with {token}") from error
    if config.leak:
        raise ValueError(token)
    if config.refused:
        raise SourceError("refused", Address("127.0.0.1", 1))
    return SourceSession([op(f"{context.namespace}.where", giving(str(context.path(config.path))))])


def source(name: str, *keys: str) -> str:
    """Return the table of a source."""
    return "\n".join([f'[sources."{name}"]', 'type = "folder"', *keys, ""])


def registry_of(path: Path, **options: Any) -> OperationRegistry:
    plugins = plugins_of(make_plugin("folder", operad_sources=[Source("folder", load, Options)]))
    return OperationRegistry.from_config(path, plugins, **options)


def written(folder: Path, text: str, name: str = "operad.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- reading -----------------------------------------------------------------------------------------

SOURCE = source("here", 'path = "data"')


@pytest.mark.parametrize(
    ("name", "text"),
    [("operad.toml", SOURCE), ("pyproject.toml", f'[project]\nname = "x"\n{SOURCE.replace("sources", "tool.operad.sources")}')],
)  # fmt: skip
async def test_a_configuration_makes_a_registry_and_entering_it_loads_the_sources(
    tmp_path: Path, name: str, text: str
) -> None:
    async with registry_of(written(tmp_path, text, name)) as registry:
        assert (await registry.execute("here.where")).data == str(tmp_path / "data")
        assert registry.failures == []


async def test_a_folder_stands_for_its_operad_toml(tmp_path: Path) -> None:
    written(tmp_path, SOURCE)
    async with registry_of(tmp_path) as registry:
        assert "here.where" in registry


async def test_shared_options_of_a_source(tmp_path: Path) -> None:
    text = SOURCE + 'namespace = "there"\naccess = { required_scopes = ["s"] }\n'
    async with registry_of(written(tmp_path, text)) as registry:
        (spec,) = registry.specs()
        assert (spec.id, spec.access_control.required_scopes) == ("there.where", ("s",))


async def test_the_registry_s_own_table(tmp_path: Path) -> None:
    registry = registry_of(written(tmp_path, '[registry]\non_mismatch = "raise"\nnormalize = "off"\n'))
    registry.register(op("a.b", giving("5"), output_schema={"type": "integer"}))
    with pytest.raises(CallError, match="OUTPUT_MISMATCH|expected integer"):
        await registry.execute("a.b")


def test_plugins_are_chosen_by_the_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, "[plugins]\nonly = []\n")
    assert {record.status for record in OperationRegistry.from_config(path).plugins} <= {"disabled"}


@pytest.mark.parametrize(("text", "complaint"), TABLES["what_cannot_be_meant_is_refused_with_what_was_expected"])
def test_what_cannot_be_meant_is_refused_with_what_was_expected(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OperationRegistry.from_config(written(tmp_path, text))
    assert complaint in str(caught.value)
    assert "operad.toml" in str(caught.value)


@attrs.frozen
class Tables:
    plain: Mapping[str, str] = attrs.field(factory=dict)
    bare: dict = attrs.field(factory=dict)  # type: ignore[type-arg]  # an author may write it so
    perhaps: dict[str, int] | None = None


@pytest.mark.parametrize("key", ["plain", "bare", "perhaps"])
def test_what_has_to_be_a_table_says_so(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"expected a table, got a string @ x\.{key}$"):
        structure(Tables, {key: "secret"}, "x")
    assert getattr(structure(Tables, {key: {}}, "x"), key) == {}
    with pytest.raises(ConfigError, match="expected a string, got an integer @ "):
        structure(Tables, {"plain": {"a": 1}}, "x")


def test_a_file_that_is_not_there_is_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration at .*operad\.toml"):
        OperationRegistry.from_config(tmp_path / "nowhere")


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "operad.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is written as UTF-16; save it as UTF-8"):
        load_configuration(path)


# --- failures ----------------------------------------------------------------------------------------

TWO = SOURCE + source("broken", "fail = true") + source("typo", 'pth = "x"')


async def test_a_source_that_fails_is_reported_and_the_others_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with registry_of(written(tmp_path, TWO)) as registry:
        assert ids(registry) == ["here.where"]
        failures = {failure.name: str(failure.error) for failure in registry.failures}
    assert set(failures) == {"broken", "typo"}
    assert "operad.toml:9: sources.typo" in failures["typo"]
    assert 'unknown key "pth"; did you mean "path"?' in failures["typo"]
    assert "source broken is not loaded" in caplog.text


async def test_strict_raises_all_of_them_and_closes_the_rest(tmp_path: Path) -> None:
    registry = registry_of(written(tmp_path, TWO), strict=True)
    with pytest.raises(ExceptionGroup) as caught:
        await registry.__aenter__()
    assert len(caught.value.exceptions) == 2
    assert len(registry) == 0


# --- variables and secrets ---------------------------------------------------------------------------


def test_variables_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "ann")
    monkeypatch.setenv("ONE", "${TWO}")
    assert Variables().expand("${ONE}", "f") == "${TWO}", "a variable is not filled in twice"
    value = {"a": ["${WHO}", "x-${WHO}-$$-$WHO", 3, True], "b": {"c": "$${WHO}"}}
    assert Variables().expand(value, "f") == {"a": ["ann", "x-ann-$-$WHO", 3, True], "b": {"c": "${WHO}"}}


def test_a_variable_that_is_not_set_is_an_error_that_names_it_and_the_key() -> None:
    with pytest.raises(ConfigError, match=r"f\.a\[0\]: environment variable NOT_SET_ANYWHERE"):
        Variables().expand({"a": ["${NOT_SET_ANYWHERE}"]}, "f")


@pytest.mark.parametrize(
    "fault",
    ['path = "${NOT_SET_ANYWHERE}"', "refused = true"],
    ids=["a variable that is not set", "an error that holds a named tuple"],
)
async def test_a_source_that_fails_does_not_keep_the_others_from_loading(tmp_path: Path, fault: str) -> None:
    async with registry_of(written(tmp_path, SOURCE + source("b", fault))) as registry:
        assert [failure.name for failure in registry.failures] == ["b"]
        assert "here.where" in registry


@pytest.mark.parametrize("key", ["fail", "leak"])
async def test_a_secret_appears_in_no_error_log_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)
    path = written(tmp_path, source("a", f"{key} = true", 'auth = { token = "${TOKEN}" }'))
    async with registry_of(path) as registry:
        (failure,) = registry.failures
        shown = [caplog.text, repr(registry.failures), repr(registry), repr(load_configuration(path))]
    error: BaseException | None = failure.error
    assert "${TOKEN}" in str(error)
    while error is not None:
        shown.append(repr(error))
        error = error.__cause__ or error.__context__
    assert not [text for text in shown if TOKEN in text]


@attrs.frozen(kw_only=True)
class Checked:
    level: str = attrs.field(default="low", validator=attrs.validators.in_(("low", "high")))
    token: str = ""
    number: int = 0
    ratio: float = 0.5
    path: Path = Path()
    names: list[str] = attrs.field(factory=list)
    env: Mapping[str, str] = attrs.field(factory=dict)
    either: str | int | None = None
    auth: Auth | None = None


class Level(Enum):
    LOW = "low"
    HIGH = "high"


@attrs.frozen(kw_only=True)
class Levelled:
    level: Level = Level.LOW


@pytest.mark.parametrize("table", TABLES["no_message_about_a_value_quotes_it"], ids=str)
def test_no_message_about_a_value_quotes_it(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        structure(Checked, table, "operad.toml:1: sources.a")
    assert TOKEN not in repr(caught.value)
    assert "operad.toml:1: sources.a" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_values_of_the_right_type_are_taken_and_a_true_is_no_number() -> None:
    auth = Auth(token="x")
    made = structure(
        Checked, {"ratio": 1, "path": "a/b", "names": ["x"], "env": {"A": "b"}, "either": 3, "auth": auth}, "here"
    )
    assert (made.ratio, made.path, made.names, made.env, made.either) == (1.0, Path("a/b"), ["x"], {"A": "b"}, 3)
    assert made.auth is auth
    assert structure(Checked, {"either": None, "auth": {"kind": "basic"}}, "here").auth == Auth(kind="basic")
    assert structure(Levelled, {"level": "high"}, "here").level is Level.HIGH
    with pytest.raises(ConfigError, match="expected one of 'low', 'high', got another string"):
        structure(Levelled, {"level": "mid"}, "here")
    for table in ({"number": True}, {"either": True}, {"ratio": False}):
        with pytest.raises(ConfigError, match="got a boolean"):
            structure(Checked, table, "here")


class Clock:
    """A class that only Python code makes."""


@attrs.frozen(kw_only=True)
class Given:
    clock: Clock = attrs.field(factory=Clock)
    clocks: list[Clock] = attrs.field(factory=list)
    call: Callable[[], int] = int
    day: datetime.date | None = None
    level: Level | None = None
    checked: list[Levelled] | None = None


def test_objects_of_python_code_are_taken_as_they_are_and_nothing_else_is_taken_unchecked() -> None:
    clock = Clock()
    made = structure(
        Given, {"clock": clock, "clocks": (clock,), "call": len, "checked": [{"level": "low"}]}, "here"
    )
    assert (made.clock, made.clocks, made.call, made.checked) == (clock, [clock], len, [Levelled()])
    for table in ({"day": "2024-05-06"}, {"level": "mid"}, {"checked": [3]}, {"clocks": {"a": 1}}):
        with pytest.raises(ConfigError, match="here"):
            structure(Given, table, "here")


def test_values_of_variables_are_removed_from_errors_of_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SHORT", "abc"), ("FOUR", "abcd"), ("LONG", "abcd-efgh")):
        monkeypatch.setenv(name, value)
    variables = Variables()
    variables.expand("${SHORT}${FOUR}${LONG}", "f")
    parts = ["abc abcd", ("abcd", 1), {"abcd-efgh": ["abcd"]}]
    told = ["abc ${FOUR}", ("${FOUR}", 1), {"${LONG}": ["${FOUR}"]}]
    cause, inner, call = ValueError(*parts), OSError("abcd"), CallError("E", "abcd", {"a": ["abcd-efgh"]})
    inner.__cause__ = inner.__context__ = cause
    cause.__context__ = inner  # a ring
    group = ExceptionGroup("group", [call, inner])
    variables.redact(group)
    assert cause.args == tuple(told)
    assert inner.args == ("${FOUR}",)
    assert (call.message, call.details) == ("${FOUR}", {"a": ["${LONG}"]})


# --- several files, and profiles ---------------------------------------------------------------------


def files_in(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "operad.toml"


def test_included_files_lie_under_the_one_that_includes_them(tmp_path: Path) -> None:
    path = files_in(
        tmp_path,
        operad='include = ["base.toml", "more/*.toml", "none/*.toml"]\n[registry]\nmax_threads = 3\n',
        base='[registry]\nmax_threads = 9\non_mismatch = "raise"\n' + source("a"),
        more__b=source("b"),
    )
    configuration = load_configuration(path)
    assert configuration.tables["registry"] == {"max_threads": 3, "on_mismatch": "raise"}
    assert sorted(configuration.sources) == ["a", "b"]
    assert (configuration.folder("a"), configuration.folder("b")) == (tmp_path, tmp_path / "more")


def test_tables_that_may_occur_several_times_are_joined_those_of_included_files_first(tmp_path: Path) -> None:
    path = files_in(
        tmp_path,
        operad='include = ["base.toml"]\n[[rules]]\nid = "mine"\n[[credentials]]\nid = "a"\n',
        base='[[rules]]\nid = "base"\n',
    )
    tables = load_configuration(path).tables
    assert tables["rules"] == [{"id": "base"}, {"id": "mine"}]
    assert tables["credentials"] == [{"id": "a"}]


@pytest.mark.parametrize(("files", "said"), TABLES["what_is_wrong_with_several_files_is_said_with_their_names"])
def test_what_is_wrong_with_several_files_is_said_with_their_names(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_configuration(files_in(tmp_path, **files))


PROFILED = """
[registry]
max_threads = 3
[sources.here]
type = "folder"
path = "here"
[profiles.dev.registry]
on_mismatch = "raise"
[profiles.dev.sources.here]
path = "there"
[profiles.dev.sources.extra]
type = "folder"
"""


def test_a_profile_is_laid_over_the_tables_key_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files_in(tmp_path, operad=PROFILED)
    assert load_configuration(path).sources == {"here": {"type": "folder", "path": "here"}}
    dev = load_configuration(path, "dev")
    assert dev.tables["registry"] == {"max_threads": 3, "on_mismatch": "raise"}
    assert dev.sources == {"here": {"type": "folder", "path": "there"}, "extra": {"type": "folder"}}
    monkeypatch.setenv("OPERAD_PROFILE", "dev")
    assert load_configuration(path) == dev
    with pytest.raises(ConfigError, match="unknown profile 'def'; did you mean \"dev\"?"):
        load_configuration(path, "def")


def test_all_unknown_keys_of_a_table_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'unknown key "normalise"; did you mean "normalize".*max_threads'):
        registry_of(written(tmp_path, '[registry]\nnormalise = "off"\nmax_thread = 3\n'))


def test_an_unknown_key_beside_options_is_told_where_those_of_a_transport_go(tmp_path: Path) -> None:
    remote = attrs.make_class(
        "Remote", {"url": attrs.field(type=str), "options": attrs.field(type=dict, factory=dict)}
    )
    for text, said in (("token", "into options = { token = … }"), ("urll", 'did you mean "url"?')):
        registry = registry_of(written(tmp_path, f'[calls]\nurl = "x"\n{text} = "y"\n'))
        with pytest.raises(ConfigError) as caught:
            registry.configured("calls", remote)
        assert said in str(caught.value)
        assert ("transport" in str(caught.value)) is (text == "token")


async def failures_of(folder: Path, text: str) -> list[str]:
    """Return the messages about the sources of a configuration that failed."""
    async with registry_of(written(folder, text)) as registry:
        return [str(failure.error) for failure in registry.failures]


def test_a_table_of_the_configuration_is_read_with_a_class_of_its_owner(tmp_path: Path) -> None:
    registry = registry_of(written(tmp_path, '[calls]\npath = "x"\nother = 1\n'))
    assert registry.configured("calls", Options, exclude=["other"]) == Options(path="x")
    assert registry.configured("serve", Options) == Options()
    assert OperationRegistry().configured("calls", Options) == Options()
    with pytest.raises(ConfigError, match='unknown key "other".* @ operad.toml:3: calls'):
        registry.configured("calls", Options)


async def test_a_namespace_that_is_none_is_blamed_on_its_table(tmp_path: Path) -> None:
    (said,) = await failures_of(tmp_path, source("a", 'namespace = "a b"'))
    assert "operad.toml:1: sources.a" in said
    assert "namespace: expected one or more of A-Z a-z 0-9 _ -" in said


async def test_a_table_whose_name_is_no_namespace_needs_one(tmp_path: Path) -> None:
    text = source("a b") + source("c d", 'namespace = "c"')
    async with registry_of(written(tmp_path, text)) as registry:
        assert ids(registry) == ["c.where"]
        (failure,) = registry.failures
    assert 'got "a b"; rename the table, or write namespace = "…" in it' in str(failure.error)


async def test_two_tables_of_one_namespace_are_told_apart(tmp_path: Path) -> None:
    (said,) = await failures_of(tmp_path, "".join(source(name, 'namespace = "n"') for name in "ab"))
    assert "operad.toml:1: sources.a" in said
    assert "operad.toml:4: sources.b" in said


async def test_sources_are_loaded_when_they_are_asked_for(tmp_path: Path) -> None:
    async with registry_of(written(tmp_path, source("a") + source("b")), sources=["a"]) as registry:
        assert ids(registry) == ["a.where"]
        await registry.load_configured(["b"])
        assert ids(registry) == ["a.where", "b.where"]
        with pytest.raises(ConfigError, match='operad.toml has no source "c"'):
            await registry.load_configured(["c"])


async def test_the_bounds_of_schemas_are_set_by_the_names_that_errors_say(tmp_path: Path) -> None:
    registry = registry_of(written(tmp_path, "[registry.limits]\nmax_schema_nodes = 2\n"))
    registry.register_spec(spec(input_schema={"properties": {name: {"type": "integer"} for name in "abcdef"}}))
    (bounded,) = registry.specs()
    assert any("at most 2 subschemas (max_schema_nodes)" in warning for warning in bounded.input_schema.warnings)


@pytest.mark.parametrize(("text", "line", "words"), TABLES["what_is_wrong_with_a_table_is_said_with_its_line"])
def test_what_is_wrong_with_a_table_is_said_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"operad.toml:{line}: .*{re.escape(words)}"):
        load_configuration(written(tmp_path, text))


async def test_a_source_of_a_missing_plugin_is_named_with_its_line_and_what_to_install(tmp_path: Path) -> None:
    text = "\n\n[sources.a]\ntype = 'openapi'\n[sources.b]\ntype = 'nobodys'\n"
    first, second = await failures_of(tmp_path, text)
    assert "operad-openapi" in first
    assert first.endswith("@ operad.toml:3: sources.a")
    assert "no installed plugin offers it" in second
