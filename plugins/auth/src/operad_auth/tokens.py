"""Static bearer tokens, each of which represents one identity."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from operad.access import Identity
from operad.errors import ConfigError
from operad_auth.credentials import Credentials


@attrs.frozen(kw_only=True)
class TokenRecord:
    """One ``[[serve.tokens]]`` table: a bearer token and the identity that the token represents."""

    token: str = attrs.field(repr=False)
    """The token that the caller sends in ``Authorization: Bearer TOKEN``."""
    id: str
    """The id of the caller."""
    scopes: list[str] = attrs.field(factory=list)
    """The scopes of the caller."""
    resources: dict[str, list[str]] = attrs.field(factory=dict)
    """The grants of the caller on resources, ``{"type:id": ["action"]}``."""

    def identity(self) -> Identity:
        """Return the identity that the token represents."""
        return Identity(self.id, self.scopes, self.resources)


class StaticTokens:
    """An authenticator that accepts the bearer tokens of a list.

    Only the HMAC of a token is kept, with a random key of this process, so that the time of a lookup reveals
    nothing about the listed tokens.

    Args:
        tokens: a mapping of tokens to identities, each an `Identity`, its JSON form ``{id, scopes, resources}`` or
            its id; or a list of records with ``token``, ``id``, ``scopes`` and ``resources``, as in
            ``[[serve.tokens]]``.

    Raises:
        ConfigError: a token is missing, empty or listed twice, or a record is malformed. The message quotes no
            token.
    """

    is_authenticator = True

    def __init__(
        self,
        tokens: Mapping[str, Any] | Iterable[TokenRecord | Mapping[str, Any]],
    ) -> None:
        self._key = os.urandom(32)
        self._identities: dict[bytes, Identity] = {}
        records = tokens.items() if isinstance(tokens, Mapping) else tokens
        for number, record in enumerate(records, start=1):
            where = f"token {number}"
            token, owner = record if isinstance(record, tuple) else _pair(record, where)
            if not isinstance(token, str) or not token.strip() or token != token.strip():
                got = type(token).__name__
                if isinstance(token, str):
                    got = "a string with spaces around it" if token.strip() else "an empty string"
                raise ConfigError(f"{where}: expected a string, not empty, without spaces around it, got {got}")
            digest = self._digest(token)
            if digest in self._identities:
                raise ConfigError(f"{where}: the same token is already used above; each caller needs its own")
            self._identities[digest] = _identity(owner, where)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Load tokens from a file, as JSON if its name ends in ``.json``, else as TOML.

        The file is a table ``{token = "id"}`` or, in JSON, a list of records, or has one of them as ``tokens``.

        Raises:
            ConfigError: the file cannot be read, or has another form. The message quotes no token.
        """
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
            document: Any = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        except (OSError, ValueError) as error:
            # The parser's message may quote the line; its place will do.
            kind = "JSON" if file.suffix == ".json" else "TOML"
            malformed = f"expected {kind} in UTF-8, got other text ({type(error).__name__})"
            reason = error.strerror if isinstance(error, OSError) else malformed
            raise ConfigError(f"the tokens of {file} cannot be read: {reason}") from None
        if isinstance(document, Mapping) and isinstance(document.get("tokens"), (list, Mapping)):
            document = document["tokens"]
        if not isinstance(document, (list, Mapping)):
            raise ConfigError(
                f"{file}: expected a table of tokens, or an array of tables, got {type(document).__name__}"
            )
        try:
            return cls(document)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None

    def __len__(self) -> int:
        return len(self._identities)

    def __repr__(self) -> str:
        return f"StaticTokens(<{len(self)} tokens>)"

    async def __call__(self, credentials: Credentials) -> Identity | None:
        """Return the identity of a bearer token, or ``None`` if it is missing or not listed."""
        token = credentials.bearer
        return None if token is None else self._identities.get(self._digest(token))

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _pair(record: TokenRecord | Mapping[str, Any], where: str) -> tuple[Any, Any]:
    if isinstance(record, TokenRecord):
        return record.token, record.identity()
    if not isinstance(record, Mapping):
        raise ConfigError(f"{where}: expected a table with token and id, got {type(record).__name__}")
    unknown = record.keys() - {field.name for field in attrs.fields(TokenRecord)}
    if unknown:
        keys = "token, id, scopes and resources"
        # Without a token in the record, another key may be the token.
        got = _words(unknown) if "token" in record else f"{len(unknown)} other keys"
        raise ConfigError(f"{where}: expected only {keys}, got {got}")
    return record.get("token"), {key: value for key, value in record.items() if key != "token"}


def _words(names: Iterable[Any]) -> str:
    return ", ".join(sorted(f'"{name}"' for name in names))


def _identity(owner: Any, where: str) -> Identity:
    if isinstance(owner, Identity):
        return owner
    try:
        return Identity(owner) if isinstance(owner, str) else Identity.from_wire(owner)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{where}: expected an id, or a table with id, scopes (a list) and resources (a table of lists), "
            f"got {'a table with other keys or values' if isinstance(owner, Mapping) else type(owner).__name__}"
        ) from None
