"""Authentication of callers, and logins to services on behalf of the user.

A server turns `Credentials` into an `Identity` with an `Authenticator`. `DelegationSigner` signs the identity of a
user for another process, and `JWTDelegation` verifies it there. `OAuthClient` gets, stores and renews tokens.
"""

from operad.lazy import lazily

_HOMES = {
    "operad_auth.credentials": (
        "AnyAuthenticator Authenticator Credentials any_of as_authenticator authenticator"
    ),
    "operad_auth.delegation": "DelegationSigner JWTDelegation",
    "operad_auth.discovery": "discover",
    "operad_auth.fetching": "Fetch FetchResponse default_fetch",
    "operad_auth.grants": "LoginRequired OAuthError OAuthToken",
    "operad_auth.http.hosts": "HostRules is_loopback",
    "operad_auth.introspection": "IntrospectionAuthenticator IntrospectionOptions",
    "operad_auth.jwts": "JWTAuthenticator JWTOptions",
    "operad_auth.login": "Login OpenURL Tell",
    "operad_auth.loopback": "LoopbackListener",
    "operad_auth.oauth": "OAuthClient",
    "operad_auth.options": "authenticator_from",
    "operad_auth.providers": "CredentialProvider provider_of",
    "operad_auth.server": "OAuthOptions",
    "operad_auth.store": "TokenKey TokenStore",
    "operad_auth.tokens": "StaticTokens TokenRecord",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
