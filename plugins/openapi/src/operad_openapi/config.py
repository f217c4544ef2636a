"""The configuration of a source: the address of the API, authentication, limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from operad import ConfigError
from operad.plugin import record
from operad_auth import CredentialProvider
from operad_auth.http import RetryPolicy

AuthType = Literal["bearer", "apiKey", "basic", "digest", "oauth2", "caller"]
Extra = Literal["query", "body", "headers"]
Kind = Literal["query", "mutation", "subscription"]
_AUTH_TYPES = ("bearer", "apiKey", "basic", "digest", "oauth2", "caller")
_KINDS = ("query", "mutation", "subscription")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _at_least(minimum: float) -> Any:
    return attrs.validators.optional(attrs.validators.ge(minimum))


def _secret(value: str | None) -> str | None:
    """Return a secret as a file or a variable holds it: often with a line break at its end."""
    return value.strip() if isinstance(value, str) else value


@record(kw_only=True)
class HTTPAuth:
    """A credential.

    ``bearer`` sends ``Authorization: Bearer <token>``; ``basic`` the same with ``Basic`` and either the encoded
    ``token`` or ``username`` and ``password``; ``digest`` responds to the server's challenge with ``username`` and
    ``password`` (RFC 7616); ``apiKey`` sends ``token`` where the document's security scheme states, or in
    ``header_name``; ``oauth2`` gets tokens from an authorization server (see `operad.auth.OAuthOptions`);
    ``caller`` uses for each call the credential of its caller, from the ``provider`` of this name.

    Raises:
        ConfigError: a field that the type needs is missing or empty, or cannot be in a header.
    """

    type: AuthType = attrs.field(validator=attrs.validators.in_(_AUTH_TYPES))
    """Which kind of credential."""
    provider: str | None = None
    """The name in ``[[credentials]]`` (``caller``)."""
    token: str | None = attrs.field(default=None, repr=False, converter=_secret)
    """The token itself (``bearer``, ``apiKey``, ``basic``)."""
    header_name: str | None = None
    """The header instead of ``Authorization`` (or, for an apiKey, instead of the scheme's place)."""
    prefix: str | None = None
    """The word before the token; default: ``Bearer``, ``Basic``, or nothing for an apiKey."""
    username: str | None = None
    """For ``basic`` and ``digest``."""
    password: str | None = attrs.field(default=None, repr=False)
    """For ``basic`` and ``digest``."""
    grant: Literal["client_credentials", "authorization_code", "device_code"] | None = None
    """How ``oauth2`` gets a token; default: ``client_credentials`` if there is a secret or a key (and no
    ``refresh_token``), else ``authorization_code``, which asks a person (``operad login``)."""
    client_id: str | None = None
    """This client's name at the authorization server (``oauth2``)."""
    client_secret: str | None = attrs.field(default=None, repr=False, converter=_secret)
    """Its secret there."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The client's key for assertions instead of a secret (RFC 7523): a JWK or PEM, or the path of one."""
    refresh_token: str | None = attrs.field(default=None, repr=False, converter=_secret)
    """One from elsewhere, instead of a login."""
    issuer: str | None = None
    """The authorization server, whose metadata name its endpoints (RFC 8414)."""
    token_url: str | None = None
    """Default: that of the document's flow, if it has the API's own origin."""
    authorization_url: str | None = None
    """Where people give their consent; default: as ``token_url``."""
    device_url: str | None = None
    """Where a code for another device comes from (RFC 8628)."""
    revocation_url: str | None = None
    """Where a token is given back (RFC 7009)."""
    scopes: list[str] = attrs.field(factory=list)
    """What to ask for."""
    audience: str | None = None
    """The audience of the token, if the server requires it."""
    resource: list[str] = attrs.field(factory=list)
    """The same by RFC 8707."""
    extra: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Further fields of token requests."""
    client_auth: Literal["auto", "basic", "post", "private_key_jwt", "none"] = "auto"
    """How the client proves itself."""
    redirect_uri: str = "http://127.0.0.1:0/callback"
    """Where the browser comes back to; port 0: a free one."""
    account: str = ""
    """Which of several accounts of this user."""

    def __attrs_post_init__(self) -> None:
        needed = {
            "bearer": self.token,
            "apiKey": self.token,
            "basic": self.token or self.username,
            "digest": self.username,
            "oauth2": self.client_id,
            "caller": self.provider,
        }[self.type]
        if not needed:
            names = {"basic": "username", "digest": "username", "oauth2": "client_id", "caller": "provider"}
            name = names.get(self.type, "token")
            state = "is missing" if getattr(self, name) is None else "is empty"
            raise ConfigError(f'auth: {name} {state}, which type = "{self.type}" needs')
        for name in ("token", "header_name", "prefix", "client_id", "client_secret"):
            if match := _CONTROL.search(getattr(self, name) or ""):
                raise ConfigError(f"auth: {name} holds the character {match[0]!r}, which no header can carry")


def _auth(value: HTTPAuth | Mapping[str, Any] | None) -> HTTPAuth | None:
    if value is None or isinstance(value, HTTPAuth):
        return value
    return HTTPAuth(**{_snake_case(key): item for key, item in value.items()})


def _credentials(value: Mapping[str, Any]) -> dict[str, HTTPAuth]:
    return {name: auth for name, item in value.items() if (auth := _auth(item)) is not None}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: "_" + match[1].lower(), name)


@record(kw_only=True)
class Pagination:
    """How an operation goes from page to page; without any of this, by ``Link: <…>; rel="next"`` (RFC 8288).

    Paths lead into the data of a page (``meta.next``, ``data.-1.id``) or name a header (``header:x-next-page``);
    keys are those of the input, ``body.cursor`` is a member of ``body``.

    Raises:
        ConfigError: fields contradict each other, or one is missing that another one needs.
    """

    items: str | None = None
    """Path of the list of items; default: the data, or the only list in them."""
    next: str | None = None
    """Path of the URL of the next page: its query is read, it is not called."""
    cursor: str | None = None
    """Path of what ``parameter`` takes next; nothing, or an empty text, is the end."""
    parameter: str | None = None
    """Key of the input that ``cursor`` goes to."""
    more: str | None = None
    """Path of what is false on the last page."""
    offset: str | None = None
    """Key of the input that counts items."""
    page: str | None = None
    """Key of the input that counts pages."""
    first_page: int = 1
    """The ``page`` of an input without one."""
    limit: str | None = None
    """Key of the input with the size of pages: a page with fewer items is the last one."""
    pages: str | None = None
    """Path of the number of the last page."""

    def __attrs_post_init__(self) -> None:
        ways = [name for name in ("next", "cursor", "offset", "page") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ConfigError(f"pagination: {' and '.join(ways)}: expected one of them")
        if (self.cursor is None) != (self.parameter is None):
            raise ConfigError("pagination: cursor and parameter: expected both or none")


def _pagination(value: Mapping[str, Any]) -> dict[str, Pagination]:
    return {
        pattern: rule if isinstance(rule, Pagination) else Pagination(**rule) for pattern, rule in value.items()
    }


@record(kw_only=True)
class HTTPLimits:
    """Bounds; each is named in the error that it causes."""

    response_bytes: int = 64 * 1024 * 1024
    """The largest response body, decompressed."""
    error_bytes: int = 64 * 1024
    """How much of the body of a failed response is kept."""
    event_bytes: int = 4 * 1024 * 1024
    """The largest event of a stream, and the largest line of JSON lines."""
    document_bytes: int = 64 * 1024 * 1024
    """The largest document, and the largest of the files that it refers to."""
    documents: int = 10_000
    """How many files one document may refer to."""
    connections: int = 100
    """Connections open at once, streams included; further calls wait."""
    redirects: int = 5
    """How many redirects one request follows."""
    header_bytes: int = 64 * 1024
    """The largest header of a response."""


def _limits(value: HTTPLimits | Mapping[str, Any]) -> HTTPLimits:
    return value if isinstance(value, HTTPLimits) else HTTPLimits(**value)


def _retries(value: RetryPolicy | int | Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy.of(value)


def _proxy(value: str | None) -> str | None:
    if value is None or value == "environment" or value.startswith(("http://", "https://")):
        return value
    raise ConfigError('proxy: expected an http or https URL, or "environment"')


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _base_url(value: str | None) -> str | None:
    if value is not None and not _is_http(value):
        raise ConfigError(
            f'base_url: expected an http or https URL such as "https://api.example.com", got "{value}"'
        )
    return value


def _origins(value: list[str]) -> list[str]:
    for origin in value:
        if not _is_http(origin):
            raise ConfigError(f'origins: expected origins such as "https://api.example.com", got "{origin}"')
    return list(value)


def _servers(value: Mapping[str, str]) -> dict[str, str]:
    for target in value.values():
        if not _is_http(target):
            raise ConfigError(f'servers: expected http or https URLs to go to, got "{target}"')
    return {source.rstrip("/"): target.rstrip("/") for source, target in value.items()}


def _headers(value: Mapping[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name):
            raise ConfigError(f"headers: {name!r} is not the name of a header")
        if match := _CONTROL.search(text):
            raise ConfigError(f'headers: "{name}" holds the character {match[0]!r}, which no header can carry')
    return dict(value)


def _named(_: Any, __: Any, value: Any) -> None:
    if isinstance(value, str) and value != "fastapi":
        raise ConfigError(f'names: expected a table, a function or "fastapi", got "{value}"')
    if not isinstance(value, (str, Mapping)) and not callable(value):
        raise ConfigError(f'names: expected a table, a function or "fastapi", got {type(value).__name__}')


def _known_way(_: Any, __: Any, value: Any) -> None:
    if value not in ("error", "warn", "off"):
        raise ConfigError('validate_inputs: expected "error", "warn" or "off"')


def shown_place(value: object) -> str:
    """Return the repr of a URL, or of a table of them, without user, password and query, which may be secret."""
    from operad_auth.http.urls import shown_url

    if isinstance(value, Mapping):
        value = {key: shown_url(item) if isinstance(item, str) else item for key, item in value.items()}
    return repr(shown_url(value) if isinstance(value, str) else value)


@record(kw_only=True)
class HTTPOptions:
    """The options that `HTTPServiceConfig` and the source ``openapi`` share."""

    base_url: str | None = attrs.field(default=None, repr=shown_place, converter=_base_url)
    """Replaces the document's root server; paths and operations with servers of their own keep them."""
    servers: dict[str, str] = attrs.field(factory=dict, repr=shown_place, converter=_servers)
    """URLs that servers of the document begin with -> what is called instead (a mock, a tenant's own host)."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=False, converter=_headers)
    """Sent with every request to the API's own origin; values given in a call take precedence."""
    query: dict[str, Any] = attrs.field(factory=dict, repr=False, converter=dict)
    """As ``headers``, for parameters of the query."""
    cookies: dict[str, str] = attrs.field(factory=dict, repr=False, converter=dict)
    """As ``headers``, for cookies."""
    path_parameters: dict[str, Any] = attrs.field(factory=dict, converter=dict)
    """Values of path parameters (a tenant, an account); values given in a call take precedence."""
    auth: HTTPAuth | None = attrs.field(default=None, converter=_auth)
    """The credential for every operation that does not declare ``security: []``."""
    credentials: dict[str, HTTPAuth] = attrs.field(factory=dict, converter=_credentials)
    """Credentials by the name of the document's security scheme."""
    origins: list[str] = attrs.field(factory=list, converter=_origins)
    """Further origins (``https://host``) that headers and credentials may be sent to."""
    timeout: float | None = attrs.field(default=30.0, validator=_at_least(0))
    """Seconds for a whole call, retries included; for a stream, until it begins. ``None``: no bound."""
    connect_timeout: float | None = attrs.field(default=10.0, validator=_at_least(0))
    """Seconds."""
    idle_timeout: float | None = attrs.field(default=None, validator=_at_least(0))
    """Seconds that a stream may be silent. ``None``: no bound."""
    retries: RetryPolicy = attrs.field(factory=RetryPolicy, converter=_retries)
    """A policy, a table of one, or the number of further attempts."""
    limits: HTTPLimits = attrs.field(factory=HTTPLimits, converter=_limits)
    """Limits of documents, responses and connections."""
    names: dict[str, str] | str | Callable[[Mapping[str, Any]], str | None] = attrs.field(
        factory=dict, validator=_named
    )
    """Other names of operations: ``operationId`` or ``GET /path`` -> name; ``fastapi`` for those of functions; in
    Python also a function of ``{operationId, method, path, tags}``, which returns ``None`` to keep a name."""
    overlays: list[Any] = attrs.field(factory=list)
    """OpenAPI Overlays (paths, URLs, dicts) that change the document before it is used, in this order."""
    patch: Callable[[dict[str, Any]], dict[str, Any] | None] | None = attrs.field(default=None, repr=False)
    """Changes the parsed document in place, or returns another one; runs after the overlays."""
    include: list[str] = attrs.field(factory=list)
    """Only these operations: a glob of names, ``tag:…``, ``path:…``, ``method:…``, or ``GET /path/*``."""
    exclude: list[str] = attrs.field(factory=list)
    """Not these operations; wins over ``include``."""
    external: list[str] = attrs.field(factory=list)
    """URL prefixes and folders that external references may be read from, besides the document's own."""
    server_variables: dict[str, str] = attrs.field(factory=dict)
    """Values for variables in server URLs, instead of their defaults."""
    operation_types: dict[str, Kind] = attrs.field(
        factory=dict,
        validator=attrs.validators.deep_mapping(
            value_validator=attrs.validators.in_(_KINDS),
            key_validator=attrs.validators.instance_of(str),
        ),
    )
    """Names or globs of operations -> ``query``, ``mutation`` or ``subscription``, if the document does not say. A
    subscription reads ``application/json`` as JSON values one after the other."""
    media_types: list[str] | dict[str, list[str]] = attrs.field(factory=list)
    """Media types of request bodies to prefer where an operation offers several; or a table of them by globs of
    ``operationId`` or ``POST /path``, the first that fits counts."""
    extras: list[Extra] = attrs.field(factory=list)
    """What an input may add that the document forgot: ``extra_query``, ``extra_body``, ``extra_headers``."""
    pagination: dict[str, Pagination] = attrs.field(factory=dict, converter=_pagination)
    """Globs of names -> how these operations go from page to page; the first that fits counts."""
    slashes: list[str] = attrs.field(factory=list)
    """Names of path parameters whose values may have several segments: their slashes stay."""
    upload_root: str | None = None
    """The folder that ``{"path": …}`` of an upload may name files in. ``None``: none may be named."""
    validate_inputs: Literal["error", "warn", "off"] = attrs.field(default="error", validator=_known_way)
    """Whether an input that does not match its schema is rejected, sent with a warning in the log, or just sent. A
    key that has no place in the request is always rejected."""
    reconnect: bool = False
    """Whether an event stream of a GET is resumed with ``Last-Event-ID`` when it breaks off or ends."""
    keep_cookies: bool = False
    """Whether cookies that the API sets go with later requests: for APIs with a login of their own."""
    session: Any = None
    """An ``aiohttp.ClientSession`` to use instead of an own one; it is not closed."""
    ssl: Any = None
    """An ``ssl.SSLContext`` instead of the four options of TLS; it satisfies ``mutualTLS``."""
    tls_ca: str | None = None
    """A file of certificates to trust instead of the system's (PEM)."""
    tls_cert: str | None = None
    """A file with the client's own certificate (PEM); it satisfies ``mutualTLS``."""
    tls_key: str | None = None
    """A file with its key, if that is not in the file of the certificate."""
    tls_verify: bool = True
    """Whether the server's certificate is checked."""
    proxy: str | None = attrs.field(default=None, repr=False, converter=_proxy)
    """The URL of an HTTP proxy, or ``environment`` for what ``HTTP_PROXY`` and its kin say."""
    request_headers: Callable[[Any], Mapping[str, str]] | None = attrs.field(default=None, repr=False)
    """``OperationContext`` -> more headers for this call; may be ``async``."""
    credentials_for: Callable[[Any], HTTPAuth | None] | None = attrs.field(default=None, repr=False)
    """``OperationContext`` -> the credential of this caller instead of ``auth``; may be ``async``."""
    on_request: Callable[[Any, Any], Any] | None = attrs.field(default=None, repr=False)
    """Called with an `HTTPRequest` and the ``OperationContext`` before each attempt to send a request to the API's
    own origins. It may change the URL and the headers, for example to sign them; may be ``async``."""
    on_response: Callable[[Any, Any], Any] | None = attrs.field(default=None, repr=False)
    """Called with an envelope of kind ``http`` and the ``OperationContext`` after each response of the API's own
    origins, failed ones too; a stream has no data yet. It may raise an error, or return an envelope to use instead
    of that of a successful response; may be ``async``."""


@record(kw_only=True)
class HTTPServiceConfig(HTTPOptions):
    """The configuration of `from_openapi`, `from_openapi_file` and `from_openapi_url`."""

    namespace: str
    trusted: bool = False
    """Whether the document is trusted: it may then name private hosts, and files outside its own folder."""
    caller: CredentialProvider | None = attrs.field(default=None, repr=False)
    """Gives the credential of the caller of each call, instead of ``auth``."""

    def __attrs_post_init__(self) -> None:
        for auth in (self.auth, *self.credentials.values()):
            if auth is not None and auth.type == "caller":
                raise ConfigError(
                    'auth: type = "caller" works for `auth` of a source of a registry; use credentials_for here'
                )
        is_personal = self.credentials_for is not None or self.caller is not None
        if self.keep_cookies and (is_personal or self.session is not None):
            raise ConfigError(
                "keep_cookies: with credentials_for one caller would get the cookies of another, and a session of "
                "your own has a jar of its own"
            )
