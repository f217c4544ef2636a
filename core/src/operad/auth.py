"""`operad.auth`: the names of operad-auth, imported when they are first used."""

from operad.lazy import lazily

_HOMES = {
    "operad_auth": (
        "AnyAuthenticator Authenticator CredentialProvider Credentials DelegationSigner Fetch FetchResponse "
        "HostRules IntrospectionAuthenticator IntrospectionOptions JWTAuthenticator JWTDelegation JWTOptions "
        "Login LoginRequired LoopbackListener OAuthClient OAuthError OAuthOptions OAuthToken StaticTokens "
        "TokenKey TokenRecord TokenStore any_of as_authenticator authenticator authenticator_from "
        "default_fetch discover is_loopback provider_of"
    ),
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
