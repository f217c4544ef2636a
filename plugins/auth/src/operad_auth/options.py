"""The authenticator that a configuration describes, for servers and the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from operad.sources import from_folder
from operad_auth.credentials import Authenticator, any_of, authenticator
from operad_auth.fetching import Fetch
from operad_auth.introspection import IntrospectionOptions
from operad_auth.jwts import JWTOptions
from operad_auth.tokens import StaticTokens, TokenRecord


def authenticator_from(
    *,
    authenticate: str | None = None,
    jwt: JWTOptions | None = None,
    introspection: IntrospectionOptions | None = None,
    tokens: Sequence[TokenRecord] = (),
    tokens_file: str | Path | None = None,
    base_dir: str | Path | None = None,
    fetch: Fetch | None = None,
) -> Authenticator | None:
    """Return the authenticator that ``[serve]`` or ``[hub]`` describes; ``None`` if no argument configures one.

    It tries listed tokens, JSON Web Tokens, token introspection and the function ``authenticate``, in this order.

    Args:
        authenticate: the name of a function, ``module:name`` or ``file.py:name``.
        jwt: the table ``[serve.jwt]``.
        introspection: the table ``[serve.introspection]``.
        tokens: the tables ``[[serve.tokens]]``.
        tokens_file: a TOML or JSON file with more tokens.
        base_dir: the folder from which relative paths start; default: the current folder.
        fetch: sends requests to authorization servers; default: the standard library in a thread.

    Raises:
        ConfigError: a file, a table or the function cannot be used.
    """
    base = Path(base_dir or ".")
    members: list[Authenticator] = []
    if tokens:
        members.append(StaticTokens(tokens))
    if tokens_file is not None:
        members.append(StaticTokens.from_file(from_folder(base, tokens_file)))
    if jwt is not None:
        members.append(jwt.authenticator(base, fetch))
    if introspection is not None:
        members.append(introspection.authenticator(fetch))
    if authenticate is not None:
        members.append(authenticator(authenticate, base))
    if not members:
        return None
    return members[0] if len(members) == 1 else any_of(*members)
