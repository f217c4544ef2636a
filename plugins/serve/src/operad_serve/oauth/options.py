"""The table ``[serve.oauth]``. This module imports no server, because checks of ``[serve]`` read the table too."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from operad import ConfigError
from operad_auth.fetching import require_secure
from operad_auth.http.urls import shown_url

ANY = "*"
_PATHS = "/oauth"


@attrs.frozen(kw_only=True)
class OAuthServerOptions:
    """The table ``[serve.oauth]``: users log in at an OpenID provider, and this server issues its own tokens."""

    url: str
    """The URL of this server as clients know it, without ``/mcp``. It is the issuer of the tokens."""
    users: dict[str, list[str]] = attrs.field(validator=attrs.validators.min_len(1))
    """The scopes of each user who may log in, by the id of the identity; ``"*"`` for every other user."""
    client_id: str
    """The client id of this server at the provider."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The secret of ``client_id`` at the provider."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The private key of ``client_id``, instead of a secret (RFC 7523): a JWK or PEM, or the path of a file."""
    client_auth: Literal["auto", "basic", "post", "none", "private_key_jwt"] = "auto"
    """How this server authenticates at the provider; ``auto``: with the private key if there is one, else with the
    secret as the provider's metadata state."""
    issuer: str | None = None
    """The URL of the provider, whose metadata name its endpoints and keys (OpenID Connect Discovery)."""
    authorization_url: str | None = None
    """The URL at which users log in, for a provider without metadata."""
    token_url: str | None = None
    """The URL of the token endpoint, for a provider without metadata."""
    userinfo_url: str | None = None
    """The URL at which a provider without ID tokens describes the user."""
    scopes: list[str] = attrs.field(factory=lambda: ["openid"])
    """The scopes to request from the provider."""
    extra: dict[str, str] = attrs.field(factory=dict)
    """Further parameters of the provider's login page, such as ``prompt = "select_account"``."""
    id_claim: str = "sub"
    """The claim of the provider that becomes the id of the identity. ``email`` must be verified."""
    id_prefix: str = ""
    """A text that is added before the claim to make the id."""
    claims: dict[str, Any] = attrs.field(factory=dict)
    """Claims that a user must have, such as ``hd = "example.com"``. A list must contain the value."""
    registration: bool = True
    """Whether clients may register themselves (RFC 7591)."""
    client_hosts: list[str] = attrs.field(factory=lambda: [ANY])
    """Hosts of client-id metadata documents, ``host`` or ``host:port``; ``*`` for every public host. A listed host
    may have a private address. An empty list allows no documents."""
    redirect_hosts: list[str] = attrs.field(factory=lambda: [ANY])
    """Hosts to which a login may return over HTTPS, besides the user's own machine; ``*`` for every host."""
    redirect_schemes: list[str] = attrs.field(factory=list)
    """Schemes of applications to which a login may return, such as ``cursor``, besides all schemes with a dot."""
    access_lifetime: float = attrs.field(default=900.0, validator=attrs.validators.gt(0))
    """Seconds for which an access token is valid."""
    refresh_lifetime: float = attrs.field(default=604_800.0, validator=attrs.validators.gt(0))
    """Seconds after which a user must log in again. A user whose account at the provider was closed keeps access
    for this time, unless the provider issues refresh tokens and ``OPERAD_TOKEN_KEY`` is set."""
    store: str | None = None
    """The file of logins and clients, on a local disk. All processes of this server share it. None: a file in the
    user's configuration folder."""

    def __attrs_post_init__(self) -> None:
        require_secure(self.url, "url")
        parts = urlsplit(self.url)
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise ConfigError(
                f'url: expected a URL without user name, query and fragment; write "{shown_url(self.url)}"'
            )
        if self.issuer is None and not (self.authorization_url and self.token_url and self.userinfo_url):
            names = ("authorization_url", "token_url", "userinfo_url")
            missing = " and ".join(name for name in names if not getattr(self, name))
            raise ConfigError(f"oauth: expected issuer, or all of {', '.join(names)}; set issuer, or {missing}")
        for name in ("issuer", "authorization_url", "token_url", "userinfo_url"):
            value = getattr(self, name)
            if value is not None:
                require_secure(value, name)

    @property
    def base(self) -> str:
        """The issuer of the tokens: `url` without a final slash."""
        return self.url.rstrip("/")

    @property
    def origin(self) -> str:
        """The scheme, host and port of `url`, as browsers send them in ``Origin``."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.lower()}"

    @property
    def mcp_url(self) -> str:
        """The resource for which MCP hosts request tokens (RFC 8707): `base` with ``/mcp``."""
        return self.base + "/mcp"

    @property
    def resources(self) -> frozenset[str]:
        """The resources for which clients may request tokens: `base` and `mcp_url`, also with a final slash."""
        return frozenset({self.base, self.base + "/", self.mcp_url, self.mcp_url + "/"})

    @property
    def metadata_path(self) -> str:
        """The path of the metadata of the authorization server (RFC 8414, 3)."""
        return "/.well-known/oauth-authorization-server" + urlsplit(self.base).path

    @property
    def resource_metadata_url(self) -> str:
        """The URL of the metadata of the HTTP API as a protected resource (RFC 9728, 3.1)."""
        return f"{self.origin}/.well-known/oauth-protected-resource{urlsplit(self.base).path}"

    @property
    def all_scopes(self) -> list[str]:
        """All scopes in `users`, sorted and each once."""
        return sorted({scope for scopes in self.users.values() for scope in scopes})

    def endpoint(self, name: str) -> str:
        """Return the URL of an endpoint of this server, such as ``token``."""
        return f"{self.base}{_PATHS}/{name}"

    def scopes_of(self, user: str) -> list[str] | None:
        """Return the scopes of a user, or None if the user may not log in."""
        found = self.users.get(user)
        return self.users.get(ANY) if found is None else found
