"""At a door: credentials are read, an authenticator answers an identity, and no token is ever quoted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError, ErrorCode, Identity
from operad_auth import Credentials, StaticTokens, TokenRecord, any_of, as_authenticator, authenticator
from operad_auth import authenticator_from as from_options

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
SECRET = "s3cr3t-t0ken"


def bearer(token: str) -> Credentials:
    return Credentials.from_headers({"Authorization": f"Bearer {token}"}, "127.0.0.1")


def test_the_authorization_header_is_read_whatever_the_case_of_its_words() -> None:
    credentials = Credentials.from_headers({"AUTHORIZATION": f"bEARER   {SECRET} ", "X-Key": "k"}, "10.0.0.1")
    assert (credentials.scheme, credentials.token, credentials.bearer) == ("bearer", SECRET, SECRET)
    assert (credentials.headers["x-key"], credentials.peer) == ("k", "10.0.0.1")
    assert Credentials.from_headers({}) == Credentials()


def test_user_and_password_of_basic_are_read_and_what_is_none_is_nothing() -> None:
    assert Credentials("basic", "dTpwOnc=").basic == ("u", "p:w")
    for token in ("!!!", "dQ==", "/w==", None):
        assert Credentials("basic", token).basic is None
    assert bearer(SECRET).basic is None


def test_no_secret_is_in_the_repr() -> None:
    credentials = bearer(SECRET)
    assert SECRET not in repr(credentials)
    assert SECRET not in repr(StaticTokens({SECRET: "ann"}))
    assert SECRET not in repr(TokenRecord(token=SECRET, id="ann"))


async def test_a_listed_token_is_its_identity_and_another_one_is_nobody() -> None:
    written = {"id": "ann", "scopes": ["read"], "resources": {"doc:1": ["write"]}}
    tokens = StaticTokens({SECRET: written, "b": "bob", "c": Identity("cy")})
    assert await tokens(bearer(SECRET)) == Identity("ann", ["read"], {"doc:1": ["write"]})
    assert await tokens(bearer("b")) == Identity("bob")
    assert await tokens(bearer("c")) == Identity("cy")
    for wrong in (SECRET[:-1], SECRET + "x", "", "\ud800", "x" * 100_000):
        assert await tokens(bearer(wrong)) is None
    assert await tokens(Credentials("basic", SECRET)) is None
    assert await tokens(Credentials()) is None


@pytest.mark.parametrize(("tokens", "complaint"), TABLES["unusable tokens"])
def test_a_list_of_tokens_that_cannot_be_used_is_refused_without_quoting_one(tokens: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StaticTokens(tokens)
    assert complaint in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), TABLES["files of tokens"])
async def test_tokens_are_read_from_a_toml_or_json_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    tokens = StaticTokens.from_file(tmp_path / name)
    assert await tokens(bearer(SECRET)) == Identity("ann", ["read"])


@pytest.mark.parametrize(
    ("name", "text"), [("t.json", f'{{"{SECRET}": '), ("t.toml", f"{SECRET} ="), ("t.json", f'"{SECRET}"')]
)
def test_a_file_of_tokens_that_cannot_be_read_is_named_and_not_quoted(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name) as caught:
        StaticTokens.from_file(tmp_path / name)
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        StaticTokens.from_file(tmp_path / "absent.toml")


async def test_a_plain_function_and_a_coroutine_function_are_authenticators() -> None:
    def plain(credentials: Credentials) -> Identity | None:
        return Identity("plain") if credentials.token == SECRET else None

    async def other(credentials: Credentials) -> Identity | None:
        return Identity("other")

    assert await as_authenticator(plain)(bearer(SECRET)) == Identity("plain")
    assert await as_authenticator(other)(bearer("x")) == Identity("other")
    both = any_of(plain, other)
    assert [await both(bearer(token)) for token in (SECRET, "x")] == [Identity("plain"), Identity("other")]
    assert await any_of()(bearer(SECRET)) is None


async def test_an_authenticator_that_fails_lets_nobody_in_and_logs_no_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(credentials: Credentials) -> Identity | None:
        raise ValueError(f"bad token {credentials.token}")

    def mistaken(credentials: Credentials) -> Any:
        return True

    with caplog.at_level(logging.DEBUG):
        assert await as_authenticator(broken)(bearer(SECRET)) is None
        assert await as_authenticator(mistaken)(bearer(SECRET)) is None
    assert "ValueError" in caplog.text
    assert "expected an Identity or None, got bool" in caplog.text
    assert SECRET not in caplog.text


async def test_one_that_cannot_decide_does_not_hide_one_that_knows() -> None:
    def away(credentials: Credentials) -> Identity | None:
        raise CallError(ErrorCode.UNAVAILABLE, "the issuer is away")

    both = any_of(away, StaticTokens({SECRET: "ann"}))
    assert await both(bearer(SECRET)) == Identity("ann")
    with pytest.raises(CallError, match="the issuer is away"):
        await both(bearer("unknown"))


async def test_a_callable_is_named_by_module_or_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "who.py").write_text(
        "from operad import Identity\n"
        "def caller(credentials):\n    return Identity(credentials.token)\n"
        "class Door:\n    def __call__(self, credentials):\n        return None\n"
        "number = 7\n"
    )
    assert await authenticator("who.py:caller", tmp_path)(bearer("ann")) == Identity("ann")
    monkeypatch.syspath_prepend(tmp_path)
    assert await authenticator("who:caller")(bearer("bob")) == Identity("bob")
    for name, complaint in [
        ("who", 'expected "module:name"'),
        ("who:absent", 'has no attribute "absent"'),
        ("who:number", "to be a function, got int"),
        ("who:Door", "got a class"),
        ("nowhere_at_all:caller", "file next to the configuration"),
        ("absent.py:caller", "does not exist"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            authenticator(name, tmp_path)


async def test_the_tables_of_a_configuration_become_one_authenticator(tmp_path: Path) -> None:
    (tmp_path / "who.py").write_text("from operad import Identity\ndef f(c): return Identity('file')\n")
    (tmp_path / "t.toml").write_text('more = "bob"')
    assert from_options() is None
    door = from_options(
        tokens=[TokenRecord(token=SECRET, id="ann")],
        tokens_file="t.toml",
        authenticate="who.py:f",
        base_dir=tmp_path,
    )
    assert door is not None
    found = [await door(bearer(token)) for token in (SECRET, "more", "else")]
    assert [identity.id for identity in found if identity] == ["ann", "bob", "file"]
