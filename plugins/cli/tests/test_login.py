"""``operad login NAME`` logs a person in at what a source talks to; the source uses the token from then on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import ConfigError, OperationRegistry, SourceError, load_plugins
from operad.plugin import Source, SourceContext, SourceSession, hookimpl
from operad_auth import OAuthClient, OAuthOptions
from plugins.cli.tests.conftest import Run


@attrs.frozen(kw_only=True)
class PetsConfig:
    issuer: str = "https://id.example"
    client_id: str | None = None


class FakeLogin:
    """A login that writes down who came."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    async def login(self, *, tell: Any, open_url: Any, timeout: float) -> str:
        tell("Log in at: https://id.example")
        self.told.append(("login", open_url is not None, timeout))
        return "the token is in a file"

    async def logout(self) -> str:
        self.told.append(("logout",))
        return "the token is forgotten here"


class Pets:
    """The plugin of a source that wants a login."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.loaded = 0

    @hookimpl
    def operad_sources(self) -> list[Source]:
        return [Source("pets", self.load, PetsConfig, login=self.login)]

    async def load(self, config: PetsConfig, context: SourceContext) -> SourceSession:
        self.loaded += 1
        raise SourceError("nobody has logged in yet")

    async def login(self, config: PetsConfig, context: SourceContext, account: str | None) -> FakeLogin:
        self.told.append((context.name, context.namespace, config.client_id, account))
        if config.client_id is None:
            raise ConfigError(f"{context.name}: set client_id")
        return FakeLogin(self.told)


@pytest.fixture
def pets() -> Pets:
    return Pets()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run, pets: Pets) -> Run:
    from operad_testing import plugins_of

    (tmp_path / "operad.toml").write_text(
        '[sources.shop]\ntype = "pets"\nnamespace = "pet"\nclient_id = "${CLIENT}"\n'
        '[sources.none]\ntype = "pets"\n[sources.plain]\ntype = "scanner"\npath = "."\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLIENT", "cli-client")
    scanner = [record for record in load_plugins().records if record.name == "scanner"]
    assert scanner
    made = plugins_of(pets)
    monkeypatch.setattr("operad.plugins.discovery.load_plugins", lambda *_, **__: made)
    return command


def test_login_shows_where_to_go_and_where_the_token_is(run: Run, pets: Pets) -> None:
    code, out, _ = run("login", "shop", "--account", "work", "--timeout", "5")
    assert code == 0
    assert out == "Log in at: https://id.example\nLogged in; the token is in a file.\n"
    assert pets.told == [("shop", "pet", "cli-client", "work"), ("login", True, 5.0)]
    assert pets.loaded == 0


def test_login_without_a_browser_opens_none(run: Run, pets: Pets) -> None:
    assert run("login", "shop", "--no-browser")[0] == 0
    assert pets.told == [("shop", "pet", "cli-client", None), ("login", False, 300.0)]


def test_with_json_standard_output_is_for_the_result_alone(run: Run, pets: Pets) -> None:
    code, out, err = run("login", "shop", "--json")
    assert (code, err) == (0, "Log in at: https://id.example\n")
    assert json.loads(out) == {"source": "shop", "loggedIn": True, "message": "the token is in a file"}
    assert json.loads(run("logout", "shop", "--json")[1])["loggedIn"] is False


def test_logout_forgets(run: Run, pets: Pets) -> None:
    code, out, _ = run("logout", "shop")
    assert (code, out) == (0, "Done: the token is forgotten here.\n")
    assert pets.told[-1] == ("logout",)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("login", "shup"), 'has no source "shup"; did you mean "shop"?'),
        (("login", "none"), "none: set client_id"),
        (("logout", "plain"), "scanner"),
    ],
)
def test_a_source_that_needs_no_login_is_an_error_in_words(
    run: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    code, _, err = run(*arguments)
    assert code == 1
    assert complaint in " ".join(err.split())


def test_a_secret_of_the_environment_is_in_no_error(run: Run, monkeypatch: pytest.MonkeyPatch, pets: Pets) -> None:
    monkeypatch.setenv("CLIENT", "s3cr3t-client")

    async def refuse(config: PetsConfig, context: SourceContext, account: str | None) -> FakeLogin:
        raise ConfigError(f"client {config.client_id} is unknown")

    monkeypatch.setattr(pets, "login", refuse)
    # The hook reads the attribute when it is called; the source was made before.
    registry = OperationRegistry.from_config("operad.toml")
    object.__setattr__(registry.plugins.source("pets"), "login", refuse)
    with pytest.raises(ConfigError, match=r"client \$\{CLIENT\} is unknown"):
        asyncio.run(registry.source_login("shop"))


def test_only_a_configuration_has_logins() -> None:
    with pytest.raises(ConfigError, match="only sources of a configuration"):
        asyncio.run(OperationRegistry().source_login("shop"))


def test_an_oauth_client_is_a_login() -> None:
    """The type says so: `source.login` may answer one."""

    async def login(config: Any, context: SourceContext, account: str | None) -> OAuthClient:
        return OAuthClient(OAuthOptions(client_id="c", issuer="https://id.example"), name=context.name or "?")

    assert Source("x", Pets().load, PetsConfig, login=login).login is login
