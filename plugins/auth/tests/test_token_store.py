"""Tokens outlive the process, are read by their user alone, and survive several processes that write at once."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError
from operad_auth import TokenKey, TokenStore

KEY = TokenKey("https://id.example", "cli", "work")
SECRET = {"access_token": "s3cr3t-t0ken"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_record_is_kept_in_a_file_of_this_user_and_it_is_said_plainly(tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "a" / "b", keyring=False)
    assert await store.get(KEY) is None
    assert await store.delete(KEY) is False
    assert not store.folder.exists()
    where = await store.set(KEY, SECRET)
    assert str(store.path) in where
    assert "NOT encrypted: set OPERAD_TOKEN_KEY" in where
    assert (mode(store.path), mode(store.folder)) == (0o600, 0o700)
    assert await TokenStore(store.folder, keyring=False).get(KEY) == SECRET
    assert await store.get(TokenKey(KEY.issuer, KEY.client_id)) is None
    assert await store.delete(KEY) is True
    assert await store.get(KEY) is None
    assert not list(store.folder.glob(".tokens-*"))


async def test_the_default_folder_is_the_users_own(tmp_path: Path) -> None:
    await TokenStore(keyring=False).set(KEY, SECRET)
    assert (tmp_path / "config" / "operad" / "tokens.json").is_file()


async def test_with_a_key_the_file_is_encrypted_and_another_key_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography.fernet import Fernet

    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    store = TokenStore(tmp_path, keyring=False)
    await store.set(TokenKey("https://plain.example", "cli"), {"access_token": "plain"})
    monkeypatch.setenv("OPERAD_TOKEN_KEY", old)
    assert "encrypted with OPERAD_TOKEN_KEY" in await store.set(KEY, SECRET)
    content = store.path.read_text()
    assert SECRET["access_token"] not in content
    assert "id.example" not in content
    assert await store.get(KEY) == SECRET
    assert await store.get(TokenKey("https://plain.example", "cli")) == {"access_token": "plain"}
    monkeypatch.setenv("OPERAD_TOKEN_KEY", f"{new},{old}")
    assert await store.get(KEY) == SECRET
    monkeypatch.setenv("OPERAD_TOKEN_KEY", new)
    with pytest.raises(ConfigError, match="encrypted with another OPERAD_TOKEN_KEY"):
        await store.get(KEY)
    monkeypatch.delenv("OPERAD_TOKEN_KEY")
    with pytest.raises(ConfigError, match="is encrypted; set OPERAD_TOKEN_KEY"):
        await store.get(KEY)
    monkeypatch.setenv("OPERAD_TOKEN_KEY", "hunter2")
    with pytest.raises(ConfigError, match="32 bytes in URL-safe base64") as caught:
        await store.set(KEY, SECRET)
    assert "hunter2" not in str(caught.value)
    monkeypatch.delenv("OPERAD_TOKEN_KEY")
    with pytest.raises(ConfigError, match="encryption_key: expected 32 bytes"):
        await TokenStore(tmp_path, keyring=False, encryption_key="hunter2").set(KEY, SECRET)


async def test_a_file_that_others_could_read_is_closed_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TokenStore(tmp_path, keyring=False)
    await store.set(KEY, SECRET)
    store.path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert await store.get(KEY) == SECRET
    assert "could be read by others" in caplog.text
    assert mode(store.path) == 0o600


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"entries": []}', "\x00"])
async def test_a_file_that_is_none_of_tokens_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    store = TokenStore(tmp_path, keyring=False)
    store.path.write_text(content)
    for call in (store.get(KEY), store.set(KEY, SECRET), store.delete(KEY)):
        with pytest.raises(ConfigError, match="is not a file of tokens"):
            await call
    assert store.path.read_text() == content


async def test_a_folder_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="tokens cannot be stored in .*: Not a directory|File exists"):
        await TokenStore(tmp_path / "file" / "folder", keyring=False).set(KEY, SECRET)


WRITE = """
import asyncio, sys
from operad_auth import TokenKey, TokenStore
async def main(folder, name):
    store = TokenStore(folder, keyring=False)
    for number in range(25):
        await store.set(TokenKey(f"https://{name}.example", str(number)), {"n": number})
asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WRITE, str(tmp_path), name) for name in names
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    entries = json.loads((tmp_path / "tokens.json").read_text())["entries"]
    assert len(entries) == 75


async def test_a_process_that_stands_still_with_the_lock_is_named_after_a_while(tmp_path: Path) -> None:
    one, other = TokenStore(tmp_path, keyring=False), TokenStore(tmp_path, keyring=False)
    async with one.lock(KEY):
        with pytest.raises(CallError, match=r"another process has locked .*\.lock"):
            async with other.lock(KEY, timeout=0.05):
                raise AssertionError("the lock was not held")
        async with other.lock(TokenKey("https://other.example", "cli"), timeout=30):
            pass
    async with other.lock(KEY, timeout=30):
        pass


async def test_a_death_in_the_middle_of_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(tmp_path, keyring=False)
    await store.set(KEY, SECRET)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        await store.set(KEY, {"access_token": "new"})
    assert await store.get(KEY) == SECRET
    assert sorted(path.name for path in tmp_path.iterdir() if not path.is_dir()) == ["tokens.json", "tokens.lock"]


# --- the keyring -----------------------------------------------------------------------------------------


@pytest.fixture
def keyring() -> Iterator[Any]:
    """A backend of the real package `keyring`, in memory."""
    package = pytest.importorskip("keyring")
    from keyring.backend import KeyringBackend

    before = package.get_keyring()  # before the class is there, which the package would choose from now on

    class Memory(KeyringBackend):
        priority = 5

        longest = 10_000  # -1 if it is locked

        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[tuple[str, str], str] = {}

        def check(self, length: int = 0) -> None:
            if length > self.longest:
                raise RuntimeError("locked")

        def get_password(self, service: str, username: str) -> str | None:
            self.check()
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.check(len(password))
            self.kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            self.check()
            del self.kept[service, username]

    backend = Memory()
    package.set_keyring(backend)
    yield backend
    package.set_keyring(before)
    KeyringBackend._classes.discard(Memory)


async def test_a_keyring_is_used_where_there_is_one(tmp_path: Path, keyring: Any) -> None:
    await TokenStore(tmp_path, keyring=False).set(KEY, {"access_token": "older"})
    store = TokenStore(tmp_path)
    assert (await store.set(KEY, SECRET)).startswith("the system's keyring")
    assert list(keyring.kept) == [("operad", '["https://id.example", "cli", "work"]')]
    assert SECRET["access_token"] not in (tmp_path / "tokens.json").read_text()
    assert await store.get(KEY) == SECRET
    assert await store.delete(KEY) is True
    assert await store.get(KEY) is None
    assert not keyring.kept


async def test_a_keyring_that_refuses_leaves_the_file_and_nothing_older_is_found(
    tmp_path: Path, keyring: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = TokenStore(tmp_path)
    await store.set(KEY, {"access_token": "older"})
    keyring.longest = 10
    assert "NOT encrypted" in await store.set(KEY, SECRET)
    assert await store.get(KEY) == SECRET
    keyring.longest = -1
    assert await store.get(KEY) == SECRET
    assert await store.delete(KEY) is True
    assert SECRET["access_token"] not in caplog.text


async def test_a_keyring_that_keeps_plain_text_is_none(tmp_path: Path, keyring: Any) -> None:
    type(keyring).priority = 0.5
    assert str(tmp_path) in await TokenStore(tmp_path).set(KEY, SECRET)
    assert not keyring.kept
