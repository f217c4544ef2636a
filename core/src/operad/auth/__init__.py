"""Who calls, and in whose name this program calls.

At a door: `Credentials` come in, an `Authenticator` answers an `Identity`. Between processes: `JWTDelegation`.
Towards others: OAuth 2.0, with tokens that outlive the process.
"""

from operad.auth.credentials import (
    AnyAuthenticator,
    Authenticator,
    Credentials,
    any_of,
    as_authenticator,
    authenticator,
)
from operad.auth.delegation import DelegationSigner, JWTDelegation
from operad.auth.discovery import discover
from operad.auth.fetching import Fetch, FetchResponse, default_fetch
from operad.auth.grants import LoginRequired, OAuthError, OAuthToken
from operad.auth.hosts import HostRules, is_loopback
from operad.auth.jwts import JWTAuthenticator, JWTOptions
from operad.auth.loopback import LoopbackListener
from operad.auth.oauth import OAuthClient
from operad.auth.options import authenticator_from
from operad.auth.server import OAuthOptions
from operad.auth.store import TokenKey, TokenStore
from operad.auth.tokens import StaticTokens, TokenRecord
from operad.sources import Login

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
