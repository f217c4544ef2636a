"""Who calls, and in whose name this program calls.

At a door: `Credentials` come in, an `Authenticator` answers an `Identity`. Between processes: `JWTDelegation`.
Towards others: OAuth 2.0, with tokens that outlive the process.
"""

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
