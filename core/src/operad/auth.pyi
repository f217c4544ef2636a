# Written by tools/references.py from the table in auth.py.

from operad_auth import AnyAuthenticator as AnyAuthenticator
from operad_auth import Authenticator as Authenticator
from operad_auth import CredentialProvider as CredentialProvider
from operad_auth import Credentials as Credentials
from operad_auth import DelegationSigner as DelegationSigner
from operad_auth import Fetch as Fetch
from operad_auth import FetchResponse as FetchResponse
from operad_auth import HostRules as HostRules
from operad_auth import IntrospectionAuthenticator as IntrospectionAuthenticator
from operad_auth import IntrospectionOptions as IntrospectionOptions
from operad_auth import JWTAuthenticator as JWTAuthenticator
from operad_auth import JWTDelegation as JWTDelegation
from operad_auth import JWTOptions as JWTOptions
from operad_auth import Login as Login
from operad_auth import LoginRequired as LoginRequired
from operad_auth import LoopbackListener as LoopbackListener
from operad_auth import OAuthClient as OAuthClient
from operad_auth import OAuthError as OAuthError
from operad_auth import OAuthOptions as OAuthOptions
from operad_auth import OAuthToken as OAuthToken
from operad_auth import StaticTokens as StaticTokens
from operad_auth import TokenKey as TokenKey
from operad_auth import TokenRecord as TokenRecord
from operad_auth import TokenStore as TokenStore
from operad_auth import any_of as any_of
from operad_auth import as_authenticator as as_authenticator
from operad_auth import authenticator as authenticator
from operad_auth import authenticator_from as authenticator_from
from operad_auth import default_fetch as default_fetch
from operad_auth import discover as discover
from operad_auth import is_loopback as is_loopback
from operad_auth import provider_of as provider_of

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
    "provider_of",
]
