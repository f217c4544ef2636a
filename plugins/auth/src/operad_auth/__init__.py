"""Who calls, and in whose name this program calls.

At a door: `Credentials` come in, an `Authenticator` answers an `Identity`. Between processes: `JWTDelegation`.
Towards others: OAuth 2.0, with tokens that outlive the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad.sources import Login
    from operad_auth.credentials import (
        AnyAuthenticator,
        Authenticator,
        Credentials,
        any_of,
        as_authenticator,
        authenticator,
    )
    from operad_auth.delegation import DelegationSigner, JWTDelegation
    from operad_auth.discovery import discover
    from operad_auth.fetching import Fetch, FetchResponse, default_fetch
    from operad_auth.grants import LoginRequired, OAuthError, OAuthToken
    from operad_auth.http.hosts import HostRules, is_loopback
    from operad_auth.jwts import JWTAuthenticator, JWTOptions
    from operad_auth.loopback import LoopbackListener
    from operad_auth.oauth import OAuthClient
    from operad_auth.options import authenticator_from
    from operad_auth.server import OAuthOptions
    from operad_auth.store import TokenKey, TokenStore
    from operad_auth.tokens import StaticTokens, TokenRecord

# Imported when first used: clients over HTTP need a part of it, and most of them no tokens at all.
_MODULES = {
    "AnyAuthenticator": "operad_auth.credentials",
    "Authenticator": "operad_auth.credentials",
    "Credentials": "operad_auth.credentials",
    "DelegationSigner": "operad_auth.delegation",
    "Fetch": "operad_auth.fetching",
    "FetchResponse": "operad_auth.fetching",
    "HostRules": "operad_auth.http.hosts",
    "JWTAuthenticator": "operad_auth.jwts",
    "JWTDelegation": "operad_auth.delegation",
    "JWTOptions": "operad_auth.jwts",
    "Login": "operad.sources",
    "LoginRequired": "operad_auth.grants",
    "LoopbackListener": "operad_auth.loopback",
    "OAuthClient": "operad_auth.oauth",
    "OAuthError": "operad_auth.grants",
    "OAuthOptions": "operad_auth.server",
    "OAuthToken": "operad_auth.grants",
    "StaticTokens": "operad_auth.tokens",
    "TokenKey": "operad_auth.store",
    "TokenRecord": "operad_auth.tokens",
    "TokenStore": "operad_auth.store",
    "any_of": "operad_auth.credentials",
    "as_authenticator": "operad_auth.credentials",
    "authenticator": "operad_auth.credentials",
    "authenticator_from": "operad_auth.options",
    "default_fetch": "operad_auth.fetching",
    "discover": "operad_auth.discovery",
    "is_loopback": "operad_auth.http.hosts",
}

__all__ = [
    "AnyAuthenticator",
    "Authenticator",
    "Credentials",
    "DelegationSigner",
    "Fetch",
    "FetchResponse",
    "HostRules",
    "JWTAuthenticator",
    "JWTDelegation",
    "JWTOptions",
    "Login",
    "LoginRequired",
    "LoopbackListener",
    "OAuthClient",
    "OAuthError",
    "OAuthOptions",
    "OAuthToken",
    "StaticTokens",
    "TokenKey",
    "TokenRecord",
    "TokenStore",
    "any_of",
    "as_authenticator",
    "authenticator",
    "authenticator_from",
    "default_fetch",
    "discover",
    "is_loopback",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
