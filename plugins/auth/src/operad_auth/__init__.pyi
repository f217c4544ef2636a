# Written by tools/references.py from the table in __init__.py.

from operad_auth.credentials import AnyAuthenticator as AnyAuthenticator
from operad_auth.credentials import Authenticator as Authenticator
from operad_auth.credentials import Credentials as Credentials
from operad_auth.credentials import any_of as any_of
from operad_auth.credentials import as_authenticator as as_authenticator
from operad_auth.credentials import authenticator as authenticator
from operad_auth.delegation import DelegationSigner as DelegationSigner
from operad_auth.delegation import JWTDelegation as JWTDelegation
from operad_auth.discovery import discover as discover
from operad_auth.fetching import Fetch as Fetch
from operad_auth.fetching import FetchResponse as FetchResponse
from operad_auth.fetching import default_fetch as default_fetch
from operad_auth.grants import LoginRequired as LoginRequired
from operad_auth.grants import OAuthError as OAuthError
from operad_auth.grants import OAuthToken as OAuthToken
from operad_auth.http.hosts import HostRules as HostRules
from operad_auth.http.hosts import is_loopback as is_loopback
from operad_auth.introspection import IntrospectionAuthenticator as IntrospectionAuthenticator
from operad_auth.introspection import IntrospectionOptions as IntrospectionOptions
from operad_auth.jwts import JWTAuthenticator as JWTAuthenticator
from operad_auth.jwts import JWTOptions as JWTOptions
from operad_auth.login import Login as Login
from operad_auth.login import OpenURL as OpenURL
from operad_auth.login import Tell as Tell
from operad_auth.loopback import LoopbackListener as LoopbackListener
from operad_auth.oauth import OAuthClient as OAuthClient
from operad_auth.options import authenticator_from as authenticator_from
from operad_auth.providers import CredentialProvider as CredentialProvider
from operad_auth.providers import provider_of as provider_of
from operad_auth.server import OAuthOptions as OAuthOptions
from operad_auth.store import TokenKey as TokenKey
from operad_auth.store import TokenStore as TokenStore
from operad_auth.tokens import StaticTokens as StaticTokens
from operad_auth.tokens import TokenRecord as TokenRecord

__all__ = [
    "AnyAuthenticator",
    "Authenticator",
    "CredentialProvider",
    "Credentials",
    "DelegationSigner",
    "Fetch",
    "FetchResponse",
    "HostRules",
    "IntrospectionAuthenticator",
    "IntrospectionOptions",
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
    "OpenURL",
    "StaticTokens",
    "Tell",
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
    "provider_of",
]
