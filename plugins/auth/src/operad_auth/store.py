"""The store of this user's tokens: the system's keyring, or else a file that only the user can read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from operad.errors import CallError, ConfigError, ErrorCode

logger = logging.getLogger("operad.auth")

KEY_VARIABLE = "OPERAD_TOKEN_KEY"
"""The environment variable with the keys of the file, separated by commas; the first encrypts."""
SERVICE = "operad"
_FILE, _LOCK = "tokens.json", "tokens.lock"
_LOCK_SECONDS = 10.0


@attrs.frozen
class TokenKey:
    """The key of a token: the issuer (or else the token URL), the client id, and the account of the user."""

    issuer: str
    client_id: str
    account: str = ""

    def text(self) -> str:
        """Return the three fields as one unambiguous string."""
        return json.dumps([self.issuer, self.client_id, self.account], ensure_ascii=False)


def default_folder() -> Path:
    """Return the folder ``operad`` in the configuration folder of the user."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "operad"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "operad"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "operad"


class TokenStore:
    """A store of records (JSON objects) by `TokenKey`, which several processes can share.

    Records are kept in the system's keyring if the package ``keyring`` is installed and finds one. Otherwise they
    are kept in the file ``tokens.json`` with mode 0600, encrypted (Fernet) if ``OPERAD_TOKEN_KEY`` is set.

    Args:
        folder: the folder of the file; default: ``operad`` in the user's configuration folder.
        keyring: whether to use the system's keyring; if not, only the file is used.
        encryption_key: the key of the file; default: the value of ``OPERAD_TOKEN_KEY``.
    """

    def __init__(
        self, folder: str | Path | None = None, *, keyring: bool = True, encryption_key: str | None = None
    ) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self._use_keyring = keyring
        self._encryption_key = encryption_key

    @property
    def path(self) -> Path:
        """The path of the file ``tokens.json``, whether or not it exists."""
        return self.folder / _FILE

    async def get(self, key: TokenKey) -> dict[str, Any] | None:
        """Return the record of a key, or ``None`` if there is no record.

        Raises:
            ConfigError: the file cannot be read, or the encryption key is missing or wrong.
        """
        return await asyncio.to_thread(self._get, key)

    async def set(self, key: TokenKey, record: Mapping[str, Any]) -> str:
        """Store a record. Return a phrase that names the keyring or the file, and states if the file is encrypted.

        Raises:
            ConfigError: the file cannot be read, or its folder cannot be written.
            CallError: ``UNAVAILABLE`` if another process locks the file for 10 s.
        """
        return await asyncio.to_thread(self._set, key, dict(record))

    async def delete(self, key: TokenKey) -> bool:
        """Delete a record, and return True if there was one. Raises the same errors as `set`."""
        return await asyncio.to_thread(self._delete, key)

    @contextlib.asynccontextmanager
    async def lock(self, key: TokenKey, timeout: float = 30.0) -> AsyncIterator[None]:
        """Hold the lock of a key between processes, because a refresh token may be valid only once.

        Raises:
            CallError: ``UNAVAILABLE`` if another process holds the lock for ``timeout`` seconds.
            ConfigError: the folder cannot be written.
        """
        name = f"refresh-{hashlib.sha256(key.text().encode()).hexdigest()[:16]}.lock"
        file = await asyncio.to_thread(self._open_lock, name)
        try:
            until = time.monotonic() + timeout
            while not _try_lock(file):
                if time.monotonic() > until:
                    raise _held(self.folder / name, timeout)
                await asyncio.sleep(0.02)
            yield
        finally:
            os.close(file)  # and with it the lock

    # --- in a thread -----------------------------------------------------------------------------------

    def _get(self, key: TokenKey) -> dict[str, Any] | None:
        keyring = self._keyring()
        if keyring is not None:
            try:
                text = keyring.get_password(SERVICE, key.text())
                if text is not None:
                    return _record(text)
            except Exception as error:  # noqa: BLE001  # each backend raises its own
                logger.warning("the keyring cannot be read (%s); trying %s", type(error).__name__, self.path)
        entry = self._read().get(_digest(key))
        return None if entry is None else self._opened(entry)

    def _set(self, key: TokenKey, record: dict[str, Any]) -> str:
        text = json.dumps(record)
        keyring = self._keyring()
        if keyring is not None:
            try:
                keyring.set_password(SERVICE, key.text(), text)
                self._change(key, None)
                return f"the system's keyring ({type(keyring).__module__.rpartition('.')[2]})"
            except Exception as error:  # noqa: BLE001  # each backend raises its own; some limit the size
                logger.warning("the keyring cannot be written (%s); using %s", type(error).__name__, self.path)
                with contextlib.suppress(Exception):  # what is older must not be found first
                    keyring.delete_password(SERVICE, key.text())
        fernet = self.cipher()
        entry = {"record": record} if fernet is None else {"encrypted": fernet.encrypt(text.encode()).decode()}
        self._change(key, entry)
        if fernet is not None:
            return f"{self.path}, encrypted with {self._key_name}"
        return (
            f"{self.path}, readable by this user only, NOT encrypted: set {KEY_VARIABLE} to encrypt it, or use a "
            "keyring (pip install 'operad[login]')"
        )

    def _delete(self, key: TokenKey) -> bool:
        found = False
        keyring = self._keyring()
        if keyring is not None:
            try:
                if keyring.get_password(SERVICE, key.text()) is not None:
                    keyring.delete_password(SERVICE, key.text())
                    found = True
            except Exception as error:  # noqa: BLE001  # each backend raises its own
                why = "the keyring cannot be changed (%s); delete the token of the service %s in it yourself"
                logger.warning(why, type(error).__name__, SERVICE)
        return self._change(key, None) or found

    def _keyring(self) -> Any:
        """Return the system's keyring; ``None`` if it is missing, or if it stores plain text or nothing."""
        if not self._use_keyring:
            return None
        try:
            import keyring

            backend: Any = keyring.get_keyring()
            return backend if backend.priority >= 1 else None
        except Exception:  # noqa: BLE001  # not installed, or a backend that cannot start
            return None

    @property
    def _key_name(self) -> str:
        """The name, in messages, of the setting that has the key."""
        return "encryption_key" if self._encryption_key else KEY_VARIABLE

    def cipher(self) -> Any:
        """Return the Fernet cipher of the file; ``None`` if no key is set.

        Raises `ConfigError` if a key is malformed, or the package cryptography is missing.
        """
        keys = self._encryption_key or os.environ.get(KEY_VARIABLE)
        if not keys:
            return None
        try:
            from cryptography.fernet import Fernet, MultiFernet
        except ImportError:
            raise ConfigError(
                f"{self._key_name} requires the package cryptography: pip install 'operad[login]'"
            ) from None
        try:
            return MultiFernet([Fernet(key.strip()) for key in keys.split(",")])
        except ValueError:
            raise ConfigError(
                f"{self._key_name}: expected 32 bytes in URL-safe base64 for each key; make one with: python -c "
                '"from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'
            ) from None

    def _opened(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        sealed = entry.get("encrypted")
        if sealed is None:
            record = entry.get("record")
            return record if isinstance(record, dict) else None
        fernet = self.cipher()
        if fernet is None:
            raise ConfigError(f"the token in {self.path} is encrypted; set {KEY_VARIABLE}, or log in again")
        from cryptography.fernet import InvalidToken

        try:
            return _record(fernet.decrypt(str(sealed).encode()).decode())
        except InvalidToken:
            raise ConfigError(
                f"the token in {self.path} is encrypted with another {self._key_name}; set it, or log in again"
            ) from None

    def _read(self) -> dict[str, Any]:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(
                f"the tokens in {self.path} cannot be read: {error.strerror}; make the file readable"
            ) from None
        with file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                logger.warning("%s could be read by others (mode %o); made it 0600", self.path, mode & 0o777)
                os.fchmod(file.fileno(), 0o600)
            content = file.read()
        try:
            entries = json.loads(content)["entries"]
            if not isinstance(entries, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.path} is not a file of tokens: expected JSON with entries; remove it and log in again"
            ) from None
        return entries

    def _change(self, key: TokenKey, entry: dict[str, Any] | None) -> bool:
        """Set or remove one entry of the file atomically; return True if there was one before."""
        if entry is None and not self.path.exists():
            return False
        with self._locked():
            entries = self._read()
            before = entries.pop(_digest(key), None)
            if entry is not None:
                entries[_digest(key)] = entry
            if entry is not None or before is not None:
                self._write(json.dumps({"version": 1, "entries": entries}, indent=1).encode())
        return before is not None

    def _write(self, content: bytes) -> None:
        number, name = tempfile.mkstemp(dir=self.folder, prefix=".tokens-")  # mode 0600
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        file = self._open_lock(_LOCK)
        try:
            until = time.monotonic() + _LOCK_SECONDS
            while not _try_lock(file):
                if time.monotonic() > until:
                    raise _held(self.folder / _LOCK, _LOCK_SECONDS)
                time.sleep(0.005)
            yield
        finally:
            os.close(file)

    def _open_lock(self, name: str) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            message = f"tokens cannot be stored in {self.folder}: {error.strerror}; make it a writable folder"
            raise ConfigError(message) from None


def _held(path: Path, seconds: float) -> CallError:
    return CallError(ErrorCode.UNAVAILABLE, f"another process has locked {path} for {seconds:g} s; retry later")


def _digest(key: TokenKey) -> str:
    return hashlib.sha256(key.text().encode()).hexdigest()


def _record(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
