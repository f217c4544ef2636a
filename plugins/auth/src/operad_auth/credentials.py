"""Authenticators: functions that return the identity of a caller for the credentials of a request."""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from operad.access import Identity
from operad.errors import CallError, ConfigError

logger = logging.getLogger("operad.auth")

MAX_TOKEN = 16_384
"""The longest token that an authenticator accepts, in characters."""


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@attrs.frozen
class Credentials:
    """The credentials of a request over HTTP or MCP, or of a connection to a hub. Secrets are not in its repr.

    Args:
        scheme: the authentication scheme in lower case, such as ``bearer``; empty if it is missing.
        token: the text after the scheme; ``None`` if it is missing.
        headers: the headers of the request. Their names are converted to lower case.
        peer: the caller's address as the server sees it, for logs.
    """

    scheme: str = ""
    token: str | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False, converter=_lower_names)
    peer: str | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], peer: str | None = None) -> Self:
        """Return the credentials in ``Authorization`` (RFC 9110, 11.6.2); empty ones if it is missing."""
        lowered = _lower_names(headers)
        scheme, _, token = lowered.get("authorization", "").strip().partition(" ")
        return cls(scheme.lower(), token.strip() or None, lowered, peer)

    @property
    def bearer(self) -> str | None:
        """The bearer token (RFC 6750); ``None`` if it is missing, or longer than `MAX_TOKEN` characters."""
        return self.token if self.scheme == "bearer" and self.token and len(self.token) <= MAX_TOKEN else None

    @property
    def basic(self) -> tuple[str, str] | None:
        """The user and password of HTTP Basic (RFC 7617); ``None`` if they are missing or malformed."""
        if self.scheme != "basic" or not self.token or len(self.token) > MAX_TOKEN:
            return None
        try:
            text = base64.b64decode(self.token, validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            return None
        user, colon, password = text.partition(":")
        return (user, password) if colon else None


Authenticator = Callable[[Credentials], Awaitable[Identity | None]]
"""A coroutine function that returns the identity of a caller, or ``None`` if it is unknown.

It does not raise for invalid credentials. It raises `CallError` ``UNAVAILABLE`` if it cannot check them now, for
example because the issuer's keys cannot be loaded. A server then responds with 503, not 401.
"""

AnyAuthenticator = Callable[[Credentials], "Awaitable[Identity | None] | Identity | None"]
"""An `Authenticator`, or a plain function that returns the same and does not block."""


def as_authenticator(function: AnyAuthenticator) -> Authenticator:
    """Return a plain or coroutine function as an `Authenticator`.

    The authenticator returns ``None`` if the function raises an exception other than `CallError`, or returns
    anything but an `Identity` or ``None``. The log has only the type of the exception, because its message may
    quote the token.

    Raises:
        ConfigError: ``function`` is not callable.
    """
    if getattr(function, "is_authenticator", False):
        return function  # type: ignore[return-value]  # marked below, or by a class of this package
    if not callable(function):
        raise ConfigError(f"authenticator: expected a function, got {type(function).__name__}")
    name = getattr(function, "__qualname__", type(function).__qualname__)

    async def authenticate(credentials: Credentials) -> Identity | None:
        try:
            answer = function(credentials)
            identity: Any = await answer if inspect.isawaitable(answer) else answer
        except CallError:
            raise
        except Exception as error:  # noqa: BLE001  # the application's code; a mistake in it must not let a caller in
            logger.error("authenticator %s raised %s; the caller is unknown", name, type(error).__name__)
            return None
        if identity is not None and not isinstance(identity, Identity):
            logger.error(
                "authenticator %s: expected an Identity or None, got %s; the caller is unknown",
                name,
                type(identity).__name__,
            )
            return None
        return identity

    authenticate.is_authenticator = True  # type: ignore[attr-defined]  # a mark on a function
    return authenticate


def any_of(*authenticators: AnyAuthenticator) -> Authenticator:
    """Return an authenticator that tries several in order and returns the first identity.

    If an authenticator raises `CallError`, the next ones are tried. If none of them returns an identity, the first
    error is raised; if there was no error, the result is ``None``.

    Raises:
        ConfigError: an authenticator is not callable.
    """
    members = [as_authenticator(member) for member in authenticators]

    async def authenticate(credentials: Credentials) -> Identity | None:
        undecided: CallError | None = None
        for member in members:
            try:
                identity = await member(credentials)
            except CallError as error:
                undecided = undecided or error
                continue
            if identity is not None:
                return identity
        if undecided is not None:
            raise undecided
        return None

    authenticate.is_authenticator = True  # type: ignore[attr-defined]  # a mark on a function
    return authenticate


def authenticator(name: str, base_dir: str | Path | None = None) -> Authenticator:
    """Import and return the authenticator that a configuration names.

    Args:
        name: ``package.module:callable``, or ``folder/file.py:callable`` with the path of a Python file.
        base_dir: the folder from which a relative path starts; default: the current folder.

    Raises:
        ConfigError: the module cannot be imported, or the name in it is missing, a class, or not callable.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise ConfigError(f'authenticate: expected "module:name" or "file.py:name", got "{name}"')
    module = _file_module(Path(base_dir or ".") / where) if where.endswith(".py") else _named_module(where)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ConfigError(f'authenticate: "{where}" has no attribute "{attribute}"')
        value = getattr(value, part)
    if not callable(value):
        raise ConfigError(f'authenticate: expected "{name}" to be a function, got {type(value).__name__}')
    if isinstance(value, type):
        raise ConfigError(f'authenticate: expected "{name}" to be a function or an instance, got a class')
    return as_authenticator(value)


def _named_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name in (name, name.partition(".")[0]):
            hint = '; for a file next to the configuration, write "file.py:name"'
        message = f'authenticate: module "{name}" cannot be imported: {type(error).__name__}: {error}{hint}'
        raise ConfigError(message) from error


def _file_module(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f'authenticate: the file "{path}" does not exist')
    spec = importlib.util.spec_from_file_location(f"_operad_authenticate_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f'authenticate: "{path}" cannot be imported: {type(error).__name__}: {error}') from error
    return module


def strings_of(value: Any) -> Iterable[str]:
    """Return the strings in a claim: a list, or words with spaces between them (RFC 8693, 4.2).

    The result is empty for a value of any other type. Items of a list that are not strings are ignored.
    """
    if isinstance(value, str):
        return value.split()
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, str)]
    return ()
