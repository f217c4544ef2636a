"""Clients, pending logins and grants in a SQLite file, which all processes of a server share.

Secrets are stored as SHA-256 digests only: they are random texts of 256 bits, so a digest reveals nothing. Each
change is one transaction, so that a code, a refresh token and a login are valid exactly once, across all
processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from operad import CallError, ConfigError, ErrorCode
from operad.sources import from_folder
from operad_auth.store import default_folder
from operad_serve.oauth.options import OAuthServerOptions

logger = logging.getLogger("operad.serve")

T = TypeVar("T")

MAX_CLIENTS = 10_000
"""The maximum number of registered clients. One more replaces the oldest client without a grant."""
MAX_LOGINS = 10_000
"""The maximum number of pending logins. One more replaces the oldest, first one without the user's consent."""
MAX_GRANTS = 100_000
"""The maximum number of grants. One more replaces the grant that ends first."""
MAX_GRANTS_OF_USER = 100
"""The maximum number of grants of one user. One more replaces the user's oldest grant."""
LOGIN_SECONDS = 600.0
"""Seconds that a user may take for each of the two steps of a login."""
CODE_SECONDS = 60.0
"""Seconds for which an authorization code is valid."""
_BUSY = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS clients (
    id TEXT PRIMARY KEY, made REAL NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS logins (
    key BLOB PRIMARY KEY, browser BLOB NOT NULL, agreed INTEGER NOT NULL, expires REAL NOT NULL,
    record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS logins_order ON logins (agreed, expires);
CREATE TABLE IF NOT EXISTS grants (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, user TEXT NOT NULL, scopes TEXT NOT NULL, resource TEXT NOT NULL,
    made REAL NOT NULL, expires REAL NOT NULL, code BLOB, record TEXT NOT NULL, refresh BLOB,
    access BLOB, access_expires REAL, former BLOB, former_expires REAL);
CREATE INDEX IF NOT EXISTS grants_client ON grants (client);
CREATE INDEX IF NOT EXISTS grants_user ON grants (user, made);
CREATE INDEX IF NOT EXISTS grants_expires ON grants (expires);
"""


def digest(text: str) -> bytes:
    """Return the SHA-256 digest of a secret, which the store has instead of the secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@attrs.frozen(kw_only=True)
class Grant:
    """The access that a user has granted to a client, with the digests of its secrets. Times are epoch seconds.

    ``code`` is None after it was redeemed. ``former`` is the previous access token.
    """

    id: str
    client: str
    user: str
    scopes: list[str]
    resource: str
    made: float
    expires: float
    code: bytes | None
    record: dict[str, Any]
    refresh: bytes | None
    access: bytes | None
    access_expires: float | None
    former: bytes | None
    former_expires: float | None

    @classmethod
    def of(cls, row: sqlite3.Row) -> Grant:
        """Return the grant in a row of the database."""
        return cls(**{**dict(row), "scopes": row["scopes"].split(), "record": json.loads(row["record"])})


class Store:
    """The SQLite file with clients, logins and grants. It is created on first use, readable by this user only.

    Methods without ``async`` read one row by its key; the others run in a thread. They raise `ConfigError` if the
    file cannot be opened, and `CallError` ``UNAVAILABLE`` if SQLite reports an error.
    """

    def __init__(self, options: OAuthServerOptions, base_dir: Path) -> None:
        name = f"serve-oauth-{hashlib.sha256(options.base.encode()).hexdigest()[:16]}.db"
        self.path = default_folder() / name if options.store is None else from_folder(base_dir, options.store)
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None

    def __del__(self) -> None:
        self.close()

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            mode = self.path.stat().st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                logger.warning("%s was open to other users (mode %o); made it 0600", self.path, mode & 0o777)
                self.path.chmod(0o600)
            connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            why = f"expected a SQLite file that this process can write: {reason}"
            raise ConfigError(f"{self.path}: {why}; fix it, or set store in [serve.oauth]") from None
        connection.row_factory = sqlite3.Row
        return connection

    async def _write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction in a thread. Raises `CallError` ``UNAVAILABLE`` if SQLite reports an error."""

        def run() -> T:
            with self._lock:
                if self._writer is None:
                    self._writer = self._open()
                try:
                    self._writer.execute("BEGIN IMMEDIATE")
                    with self._writer:  # commits, or undoes the transaction
                        return change(self._writer)
                except sqlite3.Error as error:
                    raise self._failed(error) from None

        return await asyncio.to_thread(run)

    def _row(self, query: str, *values: Any) -> Any:
        if self._reader is None:
            self._reader = self._open()
        try:
            return self._reader.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _failed(self, error: sqlite3.Error) -> CallError:
        return CallError(ErrorCode.UNAVAILABLE, f"SQLite cannot use {self.path}: {error}; try again later")

    # --- clients -----------------------------------------------------------------------------------

    def client(self, id: str) -> dict[str, Any] | None:
        """Return the record of a registered client; None if the id is unknown."""
        row = self._row("SELECT record FROM clients WHERE id = ?", id)
        return None if row is None else json.loads(row["record"])

    async def add_client(self, id: str, record: Mapping[str, Any]) -> bool:
        """Store the record of a client. Return False if there are `MAX_CLIENTS` already, all with grants."""

        def change(connection: sqlite3.Connection) -> bool:
            _make_room(
                connection, "clients", MAX_CLIENTS, "WHERE id NOT IN (SELECT client FROM grants) ORDER BY made"
            )
            if _count(connection, "clients") >= MAX_CLIENTS:
                return False
            values = (id, time.time(), json.dumps(record))
            connection.execute("INSERT INTO clients VALUES (?, ?, ?)", values)
            return True

        return await self._write(change)

    # --- pending logins ----------------------------------------------------------------------------

    async def add_login(self, key: str, browser: str, record: Mapping[str, Any], *, agreed: bool) -> None:
        """Store a login of a browser for `LOGIN_SECONDS`.

        Args:
            key: the secret that the browser will send to continue the login.
            browser: the secret in the cookie of the browser.
            record: the data for the next step, which must fit into JSON.
            agreed: whether the user has agreed to the login.
        """

        def change(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM logins WHERE expires < ?", (time.time(),))
            _make_room(connection, "logins", MAX_LOGINS, "ORDER BY agreed, expires")
            values = (digest(key), digest(browser), agreed, time.time() + LOGIN_SECONDS, json.dumps(record))
            connection.execute("INSERT INTO logins VALUES (?, ?, ?, ?, ?)", values)

        await self._write(change)

    async def take_login(self, key: str, browser: str, *, agreed: bool) -> dict[str, Any] | None:
        """Remove a login and return its record; None if it is unknown, has expired or is of another browser."""

        def change(connection: sqlite3.Connection) -> dict[str, Any] | None:
            query = (
                "DELETE FROM logins WHERE key = ? AND browser = ? AND agreed = ? AND expires >= ? RETURNING record"
            )
            row = connection.execute(query, (digest(key), digest(browser), agreed, time.time())).fetchone()
            return None if row is None else json.loads(row["record"])

        return await self._write(change)

    # --- grants ------------------------------------------------------------------------------------

    def grant(self, id: str) -> Grant | None:
        """Return the grant with an id; None if it is unknown or has expired."""
        row = self._row("SELECT * FROM grants WHERE id = ? AND expires >= ?", id, time.time())
        return None if row is None else Grant.of(row)

    async def add_grant(
        self,
        id: str,
        *,
        client: str,
        user: str,
        scopes: list[str],
        resource: str,
        expires: float,
        code: str,
        record: Mapping[str, Any],
    ) -> None:
        """Store a grant whose code has not been redeemed. The request that redeems it must match ``record``.

        ``expires`` is in epoch seconds. Grants beyond `MAX_GRANTS` and `MAX_GRANTS_OF_USER` are removed.
        """

        def change(connection: sqlite3.Connection) -> None:
            now = time.time()
            connection.execute("DELETE FROM grants WHERE expires < ?", (now,))
            _make_room(connection, "grants", MAX_GRANTS, "ORDER BY expires")
            own = "SELECT id FROM grants WHERE user = ? ORDER BY made DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM grants WHERE id IN ({own})", (user, MAX_GRANTS_OF_USER - 1))  # noqa: S608  # the line above
            values = (id, client, user, " ".join(scopes), resource, now, expires, digest(code), json.dumps(record))
            connection.execute(
                "INSERT INTO grants (id, client, user, scopes, resource, made, expires, code, record) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

        await self._write(change)

    async def redeem(self, id: str, client: str, code: str) -> Grant | None:
        """Use up a code and return its grant; None if the code is not valid.

        A wrong, expired or repeated code ends the grant with all of its tokens, because the code may be stolen.
        """

        def change(connection: sqlite3.Connection) -> Grant | None:
            row = connection.execute("SELECT * FROM grants WHERE id = ? AND client = ?", (id, client)).fetchone()
            if row is None:
                return None
            if row["code"] != digest(code) or row["made"] + CODE_SECONDS < time.time():
                connection.execute("DELETE FROM grants WHERE id = ?", (id,))
                return None
            connection.execute("UPDATE grants SET code = NULL WHERE id = ?", (id,))
            return Grant.of(row)

        return await self._write(change)

    async def issue(
        self, grant: Grant, access: str, expires: float, refresh: str | None, before: str | None
    ) -> bool:
        """Store an access token and a refresh token of a grant. Return False if the grant has ended, or ends now.

        The previous access token stays valid until it expires, for running calls.

        Args:
            grant: the grant. Its record is stored, too.
            access: the access token.
            expires: when the access token expires, in epoch seconds.
            refresh: the refresh token; None if the client gets none.
            before: the refresh token that the new one replaces; None for the first one. If ``before`` was replaced
                already, it may be stolen, and the grant ends with all of its tokens.
        """

        def change(connection: sqlite3.Connection) -> bool:
            query = (
                "UPDATE grants SET former = access, former_expires = access_expires, "
                "access = ?, access_expires = ?, refresh = ?, record = ? "
                "WHERE id = ? AND code IS NULL AND refresh IS ? AND expires >= ?"
            )
            new, old = (None if text is None else digest(text) for text in (refresh, before))
            values = (digest(access), expires, new, json.dumps(grant.record), grant.id, old, time.time())
            changed = connection.execute(query, values)
            if changed.rowcount != 1:
                connection.execute("DELETE FROM grants WHERE id = ?", (grant.id,))
            return changed.rowcount == 1

        return await self._write(change)

    async def end(self, id: str) -> None:
        """End a grant, with all of its tokens; do nothing if the id is unknown."""
        await self._write(lambda connection: connection.execute("DELETE FROM grants WHERE id = ?", (id,)))


def _count(connection: sqlite3.Connection, table: str) -> int:
    found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # our own names
    return found


def _make_room(connection: sqlite3.Connection, table: str, most: int, order: str) -> None:
    """Remove the first rows in an order until one more row fits."""
    excess = _count(connection, table) - most + 1
    if excess > 0:
        query = f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} {order} LIMIT ?)"  # noqa: S608  # as above
        connection.execute(query, (excess,))
