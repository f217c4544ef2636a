"""The configuration of a source: the URL of the API, authentication, pagination and limits."""

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
    """Return a secret without white space around it: a file or variable often ends in a line break."""
    return value.strip() if isinstance(value, str) else value


@record(kw_only=True)
class HTTPAuth:
    """A credential for an API.

    ``bearer`` sends ``Authorization: Bearer <token>``. ``basic`` sends ``Authorization: Basic`` with the encoded
    ``token``, or with ``username`` and ``password``. ``digest`` responds to the server's challenge with
    ``username`` and ``password`` (RFC 7616). ``apiKey`` sends ``token`` in the place that the document's security
    scheme names, or in ``header_name``. ``oauth2`` gets tokens from an authorization server (see
    `operad.auth.OAuthOptions`). ``caller`` sends the credential that ``provider`` has for the caller of each call.

    Raises:
        ConfigError: a field that the type needs is missing or empty, or cannot be in a header.
    """

    type: AuthType = attrs.field(validator=attrs.validators.in_(_AUTH_TYPES))
    """The type of the credential."""
    provider: str | None = None
    """The name of a provider in ``[[credentials]]`` (``caller``)."""
    token: str | None = attrs.field(default=None, repr=False, converter=_secret)
    """The token itself (``bearer``, ``apiKey``, ``basic``)."""
    header_name: str | None = None
    """The header to use instead of ``Authorization`` (``apiKey``: instead of the place that the scheme names)."""
    prefix: str | None = None
    """The text before the token; default: ``Bearer``, ``Basic``, or nothing for ``apiKey``."""
    username: str | None = None
    """The name of the user (``basic``, ``digest``)."""
    password: str | None = attrs.field(default=None, repr=False)
    """The password of the user (``basic``, ``digest``)."""
    grant: Literal["client_credentials", "authorization_code", "device_code"] | None = None
    """How ``oauth2`` gets a token; default: ``client_credentials`` if there is a secret or a key (and no
    ``refresh_token``), else ``authorization_code``, which needs a login (``operad login``)."""
    client_id: str | None = None
    """The id of this client at the authorization server (``oauth2``)."""
    client_secret: str | None = attrs.field(default=None, repr=False, converter=_secret)
    """The secret of this client (``oauth2``)."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The client's key for assertions instead of a secret (RFC 7523): a JWK, PEM, or the path of a file."""
    refresh_token: str | None = attrs.field(default=None, repr=False, converter=_secret)
    """A refresh token to use instead of a login."""
    issuer: str | None = None
    """The URL of the authorization server; its metadata name the endpoints (RFC 8414)."""
    token_url: str | None = None
    """The token endpoint; default: that of the document's flow, if it has an origin of the API."""
    authorization_url: str | None = None
    """The endpoint where users log in; default: that of the document's flow, if it has an origin of the API."""
    device_url: str | None = None
    """The endpoint for device codes (RFC 8628); default: that of the document's flow, under the same condition."""
    revocation_url: str | None = None
    """The endpoint that revokes tokens (RFC 7009)."""
    scopes: list[str] = attrs.field(factory=list)
    """The scopes to request."""
    audience: str | None = None
    """The audience of the token, if the server requires it."""
    resource: list[str] = attrs.field(factory=list)
    """The URLs of the resources that the token is for (RFC 8707)."""
    extra: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Further fields of token requests."""
    client_auth: Literal["auto", "basic", "post", "private_key_jwt", "none"] = "auto"
    """How the client authenticates to the authorization server; ``auto``: with ``private_key`` if it is set, else
    with the secret as the server's metadata state."""
    redirect_uri: str = "http://127.0.0.1:0/callback"
    """The URL that the browser returns to after a login; port 0 means any free port."""
    account: str = ""
    """The account to use if the user has several."""

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
            raise ConfigError(f'auth: {name} {state}, but type = "{self.type}" requires it')
        for name in ("token", "header_name", "prefix", "client_id", "client_secret"):
            if match := _CONTROL.search(getattr(self, name) or ""):
                raise ConfigError(f"auth: {name} has the character {match[0]!r}, which headers do not allow")


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
    """The pagination of an operation. If no field is set, ``Link: <…>; rel="next"`` is used (RFC 8288).

    Paths lead into the data of a page (``meta.next``, ``data.-1.id``) or name a header (``header:x-next-page``).
    Keys are keys of the input; ``body.cursor`` is the member ``cursor`` of ``body``.

    Raises:
        ConfigError: fields contradict each other, or one is missing that another one needs.
    """

    items: str | None = None
    """Path of the list of items; default: the data, if they are a list, or the only list in them."""
    next: str | None = None
    """Path of the URL of the next page; only the query of the URL is used."""
    cursor: str | None = None
    """Path of the value of ``parameter`` for the next page; it is missing or empty on the last page."""
    parameter: str | None = None
    """Key of the input that takes the value of ``cursor``."""
    more: str | None = None
    """Path of a value that is false, empty or missing on the last page."""
    offset: str | None = None
    """Key of the input for the number of items to skip."""
    page: str | None = None
    """Key of the input for the number of the page."""
    first_page: int = 1
    """The number of the first page, if an input has no ``page``."""
    limit: str | None = None
    """Key of the input for the size of a page; a page with fewer items is the last one."""
    pages: str | None = None
    """Path of the number of the last page."""

    def __attrs_post_init__(self) -> None:
        ways = [name for name in ("next", "cursor", "offset", "page") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ConfigError(f"pagination: expected one of next, cursor, offset and page, got {', '.join(ways)}")
        if (self.cursor is None) != (self.parameter is None):
            only = "cursor" if self.parameter is None else "parameter"
            raise ConfigError(f"pagination: expected both cursor and parameter, got only {only}")


def _pagination(value: Mapping[str, Any]) -> dict[str, Pagination]:
    return {
        pattern: rule if isinstance(rule, Pagination) else Pagination(**rule) for pattern, rule in value.items()
    }


@record(kw_only=True)
class HTTPLimits:
    """The limits of a source. The error for an exceeded limit names the limit."""

    response_bytes: int = 64 * 1024 * 1024
    """Maximum size of a response body in bytes, decompressed."""
    error_bytes: int = 64 * 1024
    """Maximum number of bytes that are read from the body of a failed response."""
    event_bytes: int = 4 * 1024 * 1024
    """Maximum size of an event or a JSON value of a stream, in bytes."""
    document_bytes: int = 64 * 1024 * 1024
    """Maximum size of a document, and of each file that it refers to, in bytes."""
    documents: int = 10_000
    """Maximum number of files that a document may refer to."""
    connections: int = 100
    """Maximum number of open connections, including streams; further calls wait."""
    redirects: int = 5
    """Maximum number of redirects that a request follows."""
    header_bytes: int = 64 * 1024
    """Maximum size of a header of a response in bytes."""


def _limits(value: HTTPLimits | Mapping[str, Any]) -> HTTPLimits:
    return value if isinstance(value, HTTPLimits) else HTTPLimits(**value)


def _retries(value: RetryPolicy | int | Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy.of(value)


def _proxy(value: str | None) -> str | None:
    if value is None or value == "environment" or is_http(value):
        return value
    scheme, found, _ = value.partition("://")  # the rest may contain a password
    got = "no scheme"
    if found:
        is_known = scheme in ("http", "https")
        got = "an invalid host or port; percent-encode the password" if is_known else f"the scheme {scheme}"
    raise ConfigError(f'proxy: expected an http or https URL, or "environment", got {got}')


def is_http(url: str) -> bool:
    """Return whether a text is an http or https URL with a host and a valid port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _base_url(value: str | None) -> str | None:
    if value is not None and not is_http(value):
        raise ConfigError(
            f'base_url: expected an http or https URL such as "https://api.example.com", got {shown_place(value)}'
        )
    return value


def _origins(value: list[str]) -> list[str]:
    for origin in value:
        if not is_http(origin):
            got = shown_place(origin)
            raise ConfigError(f'origins: expected origins such as "https://api.example.com", got {got}')
    return list(value)


def _servers(value: Mapping[str, str]) -> dict[str, str]:
    for target in value.values():
        if not is_http(target):
            raise ConfigError(f"servers: expected http or https URLs as values, got {shown_place(target)}")
    return {source.rstrip("/"): target.rstrip("/") for source, target in value.items()}


def _headers(value: Mapping[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name):
            raise ConfigError(f"headers: expected the name of a header, got {name!r}")
        if match := _CONTROL.search(text):
            raise ConfigError(f'headers: "{name}" has the character {match[0]!r}, which headers do not allow')
    return dict(value)


def _named(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, Mapping) and not callable(value) and value != "fastapi":
        got = f'"{value:.100}"' if isinstance(value, str) else type(value).__name__
        raise ConfigError(f'{attribute.name}: expected a table, a function or "fastapi", got {got}')


def _known_way(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value not in ("error", "warn", "off"):  # the value is not quoted: it may be a secret below a wrong key
        raise ConfigError(f'{attribute.name}: expected "error", "warn" or "off", got another value')


def shown_place(value: object) -> str:
    """Return the repr of a URL, or of a table of URLs, without user, password and query, which may be secret."""
    from operad_auth.http.urls import shown_url

    if isinstance(value, Mapping):
        value = {key: shown_url(item) if isinstance(item, str) else item for key, item in value.items()}
    return repr(shown_url(value) if isinstance(value, str) else value)


@record(kw_only=True)
class HTTPOptions:
    """The options that `HTTPServiceConfig` and the source ``openapi`` share."""

    base_url: str | None = attrs.field(default=None, repr=shown_place, converter=_base_url)
    """The URL to use instead of the document's root server; paths and operations keep servers of their own."""
    servers: dict[str, str] = attrs.field(factory=dict, repr=shown_place, converter=_servers)
    """Starts of server URLs in the document -> URLs to call instead (a mock, a tenant's own host)."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=False, converter=_headers)
    """Headers of every request to the API's own origins; values given in a call take precedence."""
    query: dict[str, Any] = attrs.field(factory=dict, repr=False, converter=dict)
    """Query parameters of every request to the API's own origins; values given in a call take precedence."""
    cookies: dict[str, str] = attrs.field(factory=dict, repr=False, converter=dict)
    """Cookies of every request to the API's own origins; values given in a call take precedence."""
    path_parameters: dict[str, Any] = attrs.field(factory=dict, converter=dict)
    """Values of path parameters (a tenant, an account); values given in a call take precedence."""
    auth: HTTPAuth | None = attrs.field(default=None, converter=_auth)
    """The credential for every operation that does not declare ``security: []``."""
    credentials: dict[str, HTTPAuth] = attrs.field(factory=dict, converter=_credentials)
    """Names of the document's security schemes -> the credentials for them."""
    origins: list[str] = attrs.field(factory=list, converter=_origins)
    """Further origins (``https://host``) that headers and credentials may be sent to."""
    timeout: float | None = attrs.field(default=30.0, validator=_at_least(0))
    """Seconds for a whole call, including retries; for a stream, until it begins. ``None`` means no limit."""
    connect_timeout: float | None = attrs.field(default=10.0, validator=_at_least(0))
    """Seconds to connect to the server. ``None`` means no limit."""
    idle_timeout: float | None = attrs.field(default=None, validator=_at_least(0))
    """Seconds without data after which a stream fails. ``None`` means no limit."""
    retries: RetryPolicy = attrs.field(factory=RetryPolicy, converter=_retries)
    """A policy, a table of its fields, or the number of attempts after the first."""
    limits: HTTPLimits = attrs.field(factory=HTTPLimits, converter=_limits)
    """Limits of documents, responses and connections."""
    names: dict[str, str] | str | Callable[[Mapping[str, Any]], str | None] = attrs.field(
        factory=dict, validator=_named
    )
    """Names of operations: ``operationId`` or ``GET /path`` -> name; or ``fastapi`` for the names of functions. In
    Python also a function of ``{operationId, method, path, tags}`` that returns a name, or ``None`` to keep it."""
    overlays: list[Any] = attrs.field(factory=list)
    """OpenAPI Overlays (paths, URLs, dicts) that change the document before it is used, in this order."""
    patch: Callable[[dict[str, Any]], dict[str, Any] | None] | None = attrs.field(default=None, repr=False)
    """A function that changes the parsed document in place or returns another one; it runs after the overlays."""
    include: list[str] = attrs.field(factory=list)
    """Operations to offer: globs of names, ``tag:…``, ``path:…``, ``method:…``, ``GET /path/*``; default: all."""
    exclude: list[str] = attrs.field(factory=list)
    """Operations to leave out, as in ``include``; takes precedence over ``include``."""
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
    """Names or globs of operations -> ``query``, ``mutation`` or ``subscription``, unless the document declares a
    stream. A subscription reads ``application/json`` as JSON values one after the other."""
    media_types: list[str] | dict[str, list[str]] = attrs.field(factory=list)
    """Media types of request bodies to prefer if an operation offers several; or a table of globs of
    ``operationId`` or ``POST /path`` -> such a list; the first glob that matches is used."""
    extras: list[Extra] = attrs.field(factory=list)
    """Parts of a request to which an input may add undeclared values: ``query``, ``body``, ``headers``. The keys
    of the input are ``extra_query``, ``extra_body`` and ``extra_headers``."""
    pagination: dict[str, Pagination] = attrs.field(factory=dict, converter=_pagination)
    """Globs of names -> the pagination of these operations; the first glob that matches is used."""
    slashes: list[str] = attrs.field(factory=list)
    """Names of path parameters whose values may have several segments; slashes in them are kept."""
    upload_root: str | None = None
    """The folder in which ``{"path": …}`` of an upload may name files. If ``None``, files cannot be named."""
    validate_inputs: Literal["error", "warn", "off"] = attrs.field(default="error", validator=_known_way)
    """Whether an input that does not match its schema is rejected (``error``), sent with a warning in the log
    (``warn``), or sent (``off``). An unknown key is always rejected."""
    reconnect: bool = False
    """Whether an event stream of a GET is resumed with ``Last-Event-ID`` when it breaks off or ends."""
    keep_cookies: bool = False
    """Whether cookies that the API sets are sent with later requests, for APIs that log in with cookies."""
    session: Any = None
    """An ``aiohttp.ClientSession`` to use instead of a new one; it stays open."""
    ssl: Any = None
    """An ``ssl.SSLContext`` to use instead of the options ``tls_…``; it satisfies ``mutualTLS``."""
    tls_ca: str | None = None
    """A PEM file of certificates to trust instead of the system's."""
    tls_cert: str | None = None
    """A PEM file with the client's own certificate; it satisfies ``mutualTLS``."""
    tls_key: str | None = None
    """A PEM file with the key of ``tls_cert``, if the key is not in the same file."""
    tls_verify: bool = True
    """Whether the server's certificate is checked."""
    proxy: str | None = attrs.field(default=None, repr=False, converter=_proxy)
    """The URL of an HTTP proxy, or ``environment`` to use ``HTTP_PROXY`` and the related variables."""
    request_headers: Callable[[Any], Mapping[str, str]] | None = attrs.field(default=None, repr=False)
    """A function of the ``OperationContext`` that returns further headers for the call; may be ``async``."""
    credentials_for: Callable[[Any], HTTPAuth | None] | None = attrs.field(default=None, repr=False)
    """A function of the ``OperationContext`` that returns the credential of the caller, or ``None`` to use
    ``auth``; may be ``async``."""
    on_request: Callable[[Any, Any], Any] | None = attrs.field(default=None, repr=False)
    """Called with an `HTTPRequest` and the ``OperationContext`` before each attempt to send a request to the API's
    own origins. It may change the URL and the headers, for example to sign them; may be ``async``."""
    on_response: Callable[[Any, Any], Any] | None = attrs.field(default=None, repr=False)
    """Called with an envelope of kind ``http`` and the ``OperationContext`` after each response of the API's own
    origins, also after a failed one; the envelope of a stream has no data. It may raise an error, or return an
    envelope to use instead of that of a successful response; may be ``async``."""


@record(kw_only=True)
class HTTPServiceConfig(HTTPOptions):
    """The configuration of `from_openapi`, `from_openapi_file` and `from_openapi_url`."""

    namespace: str
    """The namespace of the operations."""
    trusted: bool = False
    """Whether the document is trusted: it may then name private hosts, and refer to any file or URL."""
    caller: CredentialProvider | None = attrs.field(default=None, repr=False)
    """The provider of the caller's credential for each call, used instead of ``auth``."""

    def __attrs_post_init__(self) -> None:
        for auth in (self.auth, *self.credentials.values()):
            if auth is not None and auth.type == "caller":
                raise ConfigError(
                    'auth: type = "caller" works for `auth` of a registry\'s source only; use credentials_for here'
                )
        is_personal = self.credentials_for is not None or self.caller is not None
        if self.keep_cookies and (is_personal or self.session is not None):
            raise ConfigError(
                "keep_cookies: cannot be used with credentials of callers, who would share cookies, or with "
                "session, which has its own cookies; remove one of them"
            )
