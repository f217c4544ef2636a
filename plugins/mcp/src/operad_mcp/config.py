"""The configuration of MCP servers and their tools."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import attrs
import msgspec

from operad import ConfigError, Identity
from operad.plugin import record
from operad_auth.http import RetryPolicy, shown_url

if TYPE_CHECKING:
    from operad_mcp.asking import CallClient

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
Json = dict[str, Any]
Elicitation = Callable[..., Awaitable[Json | None]]
Sampling = Callable[..., Awaitable[Json]]
Roots = Sequence[str | Mapping[str, Any]]
Mode = Literal["auto", "legacy", "2026-07-28"]
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@record
class MCPProgress:
    """The progress of a call, as its server reports it. ``total`` and ``message`` are ``None`` if not reported."""

    operation_id: str
    request_id: str | None
    """The ``request_id`` of the call's context."""
    progress: float
    total: float | None = None
    message: str | None = None


@record(kw_only=True)
class MCPCall:
    """The call of an operation, as callbacks receive it."""

    server: str
    """The name of the server."""
    operation_id: str | None = None
    """``None`` if the server does not state for which call it asks, and not exactly one call is in progress."""
    request_id: str | None = None
    """The ``request_id`` of the call's context."""
    identity: Identity | None = None
    """The caller; ``None`` if it is anonymous or not known."""
    report: Callable[..., None] | None = attrs.field(default=None, repr=False, eq=False)
    """The function `operad.OperationContext.report` of the call; ``None`` if the call has no observers."""
    client: CallClient | None = attrs.field(default=None, repr=False, eq=False)
    """The client that waits for the call, if it can be asked; see `client_of`."""


@record(kw_only=True)
class MCPTask:
    """A call that became a task of its server."""

    call: MCPCall
    task_id: str = attrs.field(repr=False)
    """The id of the task, with which any client can request the result. Keep it secret.

    A call with ``OperationContext(metadata={"mcp": {"task": task_id}})`` requests the result.
    """
    status: str
    """``working``, ``input_required``, ``completed``, ``failed`` or ``cancelled``."""
    message: str | None = None
    """The server's message about the status; ``None`` if it sent none."""


@record(kw_only=True)
class MCPExtras:
    """Headers and metadata to send with one call."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=lambda headers: f"<{len(headers)} headers>")
    """HTTP headers. They cannot replace the headers of the protocol."""
    meta: Mapping[str, Any] = attrs.field(factory=dict, repr=lambda meta: f"<{len(meta)} fields>")
    """Fields of ``_meta``."""


@record(kw_only=True)
class MCPArgument:
    """Changes to an argument of a tool. Options that are not set change nothing."""

    name: str | None = None
    """Another name for callers."""
    description: str | None = None
    """Another description."""
    value: Any = attrs.field(default=msgspec.UNSET, repr=False)
    """A fixed value to send. Callers neither see nor pass the argument."""
    hide: bool = False
    """Whether the argument is neither offered to callers nor sent."""


@record(kw_only=True)
class MCPTool:
    """Changes to a tool, such as another name or fewer arguments. Options that are not set change nothing."""

    name: str | None = None
    """Another name for the operation."""
    title: str | None = None
    """Another name for people."""
    description: str | None = None
    """Another description."""
    hide: bool = False
    """Whether no operation is offered for the tool."""
    type: Literal["query", "mutation"] | None = None
    """The type of the operation, if the server's hints are missing or wrong."""
    idempotent: bool | None = None
    """Whether the tool may run again after a failure, if the server's hints are missing or wrong."""
    arguments: dict[str, MCPArgument] = attrs.field(factory=dict)
    """Changes to arguments, by the names that the server gives them."""


@record(kw_only=True)
class MCPAuth:
    """The credentials for an HTTP server, such as a bearer token or OAuth.

    With ``type = "oauth"``, this client registers with the server's authorization server, or uses ``client_id``.
    It uses the token of ``operad login``, and renews it when it expires. Without a token, a call fails with
    ``AUTHORIZATION_REQUIRED``. A program can also log its users in itself, with ``redirect_handler`` and
    ``callback_handler``.

    The other types need no login by a user. With ``client_credentials``, this client sends a ``client_secret``, or
    a JWT that its ``private_key`` signs (RFC 7523). With ``jwt_bearer``, it exchanges an ``assertion`` for tokens:
    a JWT of the workload's platform, or of an enterprise's identity provider. With ``caller``, each call uses the
    credential of its own caller, from ``provider``. With ``provider``, an ``httpx2.Auth`` is used unchanged.
    """

    type: Literal["bearer", "oauth", "client_credentials", "jwt_bearer", "caller", "provider"] = "bearer"
    """The kind of credentials; most of the other keys belong to one or two kinds."""
    token: str | None = attrs.field(default=None, repr=False)
    """The token, for ``bearer``."""
    client_id: str | None = None
    """The id of this client at the authorization server."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The secret of this client at the authorization server, if it has a secret."""
    client_name: str = "operad"
    """The name that users see when they authorize this client."""
    client_metadata_url: str | None = None
    """The URL of a document that serves as client id, if the authorization server supports such ids."""
    token_endpoint_auth_method: str | None = None
    """``none``, ``client_secret_basic`` or ``client_secret_post``. The default is ``client_secret_basic`` if
    ``client_secret`` is set, ``none`` if only ``client_id`` is; for a client that registers, the server chooses.
    """
    issuer: str | None = None
    """The URL of the authorization server. No other server receives ``client_id``, a registration or the user.
    ``None``: the MCP server names the authorization server."""
    scope: str | None = None
    """The scopes to request, separated by spaces. The default is the scopes that the server names."""
    redirect_uri: str = "http://127.0.0.1:8763/callback"
    """The address on this machine to which the browser is redirected."""
    redirect_handler: Callable[[str], Awaitable[None]] | None = None
    """Awaited with the URL that the user must visit."""
    callback_handler: Callable[[], Awaitable[Sequence[str | None]]] | None = None
    """Awaited for the ``code``, the ``state`` and, if present, the ``iss`` of the redirect, in this order."""
    account: str = ""
    """The name of the account, if this user has several at the server."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The key in PEM that signs a JWT, instead of ``client_secret``, for ``client_credentials``."""
    signing_algorithm: str = "ES256"
    """The algorithm with which ``private_key`` signs."""
    assertion: Any = attrs.field(default=None, repr=False)
    """The JWT for ``jwt_bearer``, or a function ``assertion(issuer, resource)`` that returns it; can be async."""
    store: Any = None
    """The store of the tokens: an ``operad.auth.TokenStore``, or an object with the four methods of
    ``mcp.client.auth.TokenStorage``. The default depends on the type: a ``TokenStore`` for ``oauth``, memory for
    ``client_credentials``."""
    provider: Any = attrs.field(default=None, repr=False)
    """For ``caller``, the name of a table in ``[[credentials]]``, or an ``operad.auth.CredentialProvider``. For
    ``provider``, an ``httpx2.Auth``."""

    def __attrs_post_init__(self) -> None:
        if self.type == "bearer" and not self.token:
            raise ConfigError('auth: type "bearer" needs a token, and none is set; set token, or another type')
        secret = self.client_secret or self.private_key
        if self.type == "oauth" and self.client_secret and not self.issuer:
            raise ConfigError(
                'auth: type "oauth" with client_secret needs issuer, the URL of the authorization server that the '
                "secret belongs to; otherwise any server that the MCP server names would receive it"
            )
        if self.type == "client_credentials" and not (self.client_id and secret and self.issuer):
            needed = {"client_id": self.client_id, "issuer": self.issuer, "client_secret or private_key": secret}
            missing = ", ".join(name for name, value in needed.items() if not value)
            raise ConfigError(f'auth: type "client_credentials" needs {", ".join(needed)}; set {missing}')
        if self.type == "jwt_bearer" and (not self.issuer or self.assertion is None):
            missing = "assertion" if self.issuer else "issuer"
            raise ConfigError(f'auth: type "jwt_bearer" needs issuer and assertion, got no {missing}; set both')
        if self.type == "caller" and self.provider is None:
            raise ConfigError('auth: type "caller" needs provider; set it to the name of a table [[credentials]]')
        if self.type != "caller" and (self.type == "provider") != (self.provider is not None):
            if self.provider is None:
                raise ConfigError('auth: type "provider" needs provider; set it to an httpx2.Auth')
            raise ConfigError(f'auth: provider needs type "caller" or "provider", got "{self.type}"; set type')


def _has_port(url: str) -> bool:
    """Return whether a URL has a host and a valid port or none. The error of `urlsplit` may quote a password."""
    try:
        return bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:
        return False


def _shown_url(url: str | None) -> str:
    return repr(None if url is None else shown_url(url))


def _retries(value: RetryPolicy | int | Mapping[str, Any]) -> RetryPolicy:
    """Return the policy for a policy, a number of further attempts, or a table."""
    # No method is safe to repeat in itself: every request is a POST, and its body determines its effect.
    if isinstance(value, Mapping):
        value = {"methods": (), **value}
    elif isinstance(value, int):
        value = {"methods": (), "attempts": value}
    return RetryPolicy.of(value)


@record(kw_only=True)
class MCPClientConfig:
    """The address of one MCP server, and options for its operations.

    Give exactly one of ``command``, ``url`` and ``server``. Raises `ConfigError` if options do not fit together.
    """

    command: str | None = None
    """A program that speaks MCP on its standard streams. Its environment has ``HOME LOGNAME PATH SHELL TERM
    USER`` of this process (other names on Windows), the variables in ``inherit_env``, and ``env``."""
    args: list[str] = attrs.field(factory=list)
    """The program's arguments."""
    env: dict[str, str] = attrs.field(factory=dict, repr=lambda env: f"<{len(env)} variables>")
    """Environment variables for the program."""
    inherit_env: list[str] = attrs.field(factory=list)
    """Names of this process's variables to pass to the program, such as ``HTTPS_PROXY`` or ``SSL_CERT_FILE``."""
    cwd: str | None = None
    """The folder in which the program starts. ``None``: that of the configuration file, else of this process."""
    stderr: str | None = None
    """A file to which the program's standard error is appended.

    With or without a file, errors quote the last lines of the standard error, and the debug log has all of it.
    """
    url: str | None = attrs.field(default=None, repr=_shown_url)
    """The URL of a server over HTTP."""
    transport: Literal["http", "sse"] = "http"
    """For ``url``: streamable HTTP, or the HTTP+SSE transport of 2024-11-05."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=lambda headers: f"<{len(headers)} headers>")
    """HTTP headers to send with every request to ``url``."""
    auth: MCPAuth | None = None
    """The credentials of this client at ``url``."""
    list_auth: MCPAuth | None = None
    """With ``auth = {type = "caller", …}``: the credential with which this client lists what the server offers. No
    call uses it. ``None``: the listing is requested without a credential."""
    max_sessions: int = attrs.field(default=1_000, validator=attrs.validators.ge(1))
    """With ``type = "caller"``: the maximum number of sessions. Each credential has its own session. At the limit,
    the session that was idle longest is closed for a new one."""
    session_idle: float = attrs.field(default=300.0, validator=attrs.validators.gt(0))
    """With ``type = "caller"``: seconds without a call after which a session is closed."""
    proxy: str | None = attrs.field(default=None, repr=_shown_url)
    """The URL of a proxy. ``None``: the proxies of the environment (``HTTPS_PROXY``, ``NO_PROXY``, …)."""
    tls_ca: str | None = None
    """The path of a PEM file with the certificates to trust instead of the system's."""
    tls_cert: str | None = None
    """The path of a PEM file with this client's certificate and its chain."""
    tls_key: str | None = None
    """The path of a PEM file with the key of ``tls_cert``. ``None``: the key is in the file of ``tls_cert``."""
    retries: RetryPolicy = attrs.field(factory=lambda: RetryPolicy(methods=()), converter=_retries)
    """How requests are sent again after an HTTP status such as 429 or 503: the number of further attempts, or a
    table.

    Only requests that change nothing are repeated. ``also = { POST = [429] }`` names statuses after which all
    requests are repeated, because the server certainly did nothing.
    """
    server: Any = None
    """A server object of the SDK (``MCPServer``, or the low-level ``Server``) in this process."""

    mode: Mode = "auto"
    """``auto`` asks for the stateless protocol (2026-07-28) and falls back to the handshake. ``legacy`` uses the
    handshake immediately, which helps if a server never responds to the question. ``2026-07-28`` never falls back.
    """
    connect_timeout: float = 30.0
    """Seconds in which a connection must be ready."""
    discover_timeout: float = 5.0
    """Seconds that ``auto`` waits for a response before it falls back to the handshake."""
    timeout: float | None = 30.0
    """Seconds that a call without a deadline of its own may take; ``None``: no limit."""
    renew_timeout: bool = False
    """Whether progress of a call restarts its ``timeout``."""
    shutdown_timeout: float = 2.0
    """Seconds that a program gets to end by itself and again after SIGTERM, or an HTTP server to end a session."""
    max_message_bytes: int = 64 * 1024 * 1024
    """The maximum size in bytes of a message from the server."""
    max_pages: int = 1000
    """The maximum number of pages of a listing."""
    max_listing_bytes: int = 256 * 1024 * 1024
    """The maximum size in bytes of all pages of a listing together."""

    include: list[str] | None = None
    """Shell patterns of the names to offer; ``None``: all."""
    exclude: list[str] = attrs.field(factory=list)
    """Shell patterns of the names to leave out."""
    overrides: dict[str, MCPTool] = attrs.field(factory=dict)
    """Changes to tools, by the names that the server gives them."""
    pin: bool | str = False
    """Whether to approve the tools of the first listing, and to hold tools that are new or changed later.

    The definitions are in ``operad.pins.json`` next to the configuration, or in the file with this path; ``operad
    pin --accept`` accepts held tools. True without a configuration file holds tools until the source is loaded
    again.
    """
    start: Literal["load", "first use"] = "load"
    """When to connect. ``load``: immediately. ``first use``: offer the remembered operations, and connect with the
    first call; a server without remembered operations is connected immediately.
    """
    server_operations: bool = False
    """Whether to offer ``server.about``, ``server.ping`` and, if the server completes arguments,
    ``server.complete``.
    """
    tools: bool = True
    """Whether to offer the server's tools as operations."""
    resources: bool = True
    """Whether to offer ``resources.list``, ``resources.read``, ``resources.subscribe``, and an operation per
    template."""
    prompts: bool = True
    """Whether to offer ``prompts.list``, ``prompts.get``, and an operation per prompt."""
    trust_annotations: bool = False
    """Whether to trust the hints of tools. A tool with ``readOnlyHint`` is then a query, which may be called again
    after a failure; a tool with ``idempotentHint`` is an idempotent mutation.
    """
    parse_json_text: bool = False
    """Whether to parse the text of a tool as JSON, if the tool declares an output schema but sends no structured
    content, and the value fits the schema.
    """

    elicitation: Elicitation | Literal["caller"] | None = None
    """The callback for questions to a user, in the JSON of the protocol.

    ``await elicitation(params)`` returns ``{"action": "accept", "content": {…}}``, or the action ``decline`` or
    ``cancel``; the result ``None`` means ``cancel``. With a second parameter, it gets the `MCPCall`. ``caller``
    asks the client that waits for the call: the terminal of ``operad call``, or the client of a served registry.
    """
    sampling: Sampling | Literal["caller"] | None = None
    """The callback for requests to a model, in the JSON of the protocol. ``await sampling(params)`` returns
    ``{"role", "content", "model", …}``. A second parameter and ``caller`` are as for ``elicitation``."""
    roots: Roots | Callable[[], Awaitable[Roots]] | None = None
    """The URIs (or ``{uri, name}``) in which the server may work, or a function that returns them."""
    on_call: Callable[[MCPCall], Any] | None = None
    """Called with the `MCPCall` before each request of a call; can be async. Returns `MCPExtras` or ``None``."""
    on_task: Callable[[MCPTask], Any] | None = None
    """Called with the `MCPTask` when a call becomes a task or the task has a new state; can be async."""
    keep_tasks: bool = False
    """Whether a task is left running when its call is cancelled or times out. Otherwise it is cancelled.

    The task of a call with an idempotency key is always left running: the same call again requests its result.
    """
    on_progress: Callable[[MCPProgress], Any] | None = None
    """Called with each `MCPProgress` of a call; can be async."""
    on_log: Callable[[Json], Any] | None = None
    """Called with each log message of the server, ``{level, logger?, data}``; can be async. ``None``: the messages
    go to the logger ``operad.mcp``."""
    log_level: LogLevel | None = None
    """The lowest level of log messages to request from the server; if ``None``, no level is requested."""

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("command", "url", "server") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ConfigError(f"expected exactly one of command, url and server for an MCP server, got {found}")
        if self.server is not None and not hasattr(self.server, "run"):
            kind = type(self.server).__name__
            raise ConfigError(
                f"server: expected a server of the SDK, such as to_mcp(registry).server(), got {kind}"
            )
        for name, url in (("url", self.url), ("proxy", self.proxy)):
            if url is not None and not url.startswith(("http://", "https://")):
                scheme = url.partition("://")[0] if "://" in url else "no scheme"
                raise ConfigError(f"{name}: expected a URL with http:// or https://, got {scheme}")
            if url is not None and not _has_port(url):
                raise ConfigError(f"{name}: expected a host, and a port below 65536 if any; encode passwords")
        if self.url is None and self.auth is not None and self.auth.type == "caller":
            raise ConfigError('auth: type "caller" needs a url; a program has one credential for all, in its env')
        if self.url is None and (self.auth or self.headers):
            raise ConfigError("auth and headers need a url, and none is set; pass the secrets of a program in env")
        self._check_callers()
        if self.tls_key is not None and self.tls_cert is None:
            raise ConfigError("tls_cert: expected the certificate of the key in tls_key, got none; set tls_cert")
        self._check_headers()
        for name in ("elicitation", "sampling"):
            asked: Any = getattr(self, name)
            if asked is not None and asked != "caller" and not callable(asked):
                raise ConfigError(f'{name}: expected "caller", or in Python a function, got {asked!r:.80}')

    def _check_headers(self) -> None:
        """Raise `ConfigError`, without its value, for a header that cannot be sent."""
        token = None if self.auth is None else self.auth.token
        values = {"auth: token": token or "", **{f"headers: {name}": self.headers[name] for name in self.headers}}
        if names := [name for name in self.headers if not _NAME.fullmatch(name)]:
            raise ConfigError(f"headers: expected the name of a header, such as X-Key, got {names[0]!r:.100}")
        if places := [place for place, value in values.items() if not _VALUE.fullmatch(value)]:
            raise ConfigError(f"{places[0]}: expected one line of ASCII without spaces around it; correct it")

    def _check_callers(self) -> None:
        """Raise `ConfigError` if the options do not fit credentials of callers."""
        is_callers = self.auth is not None and self.auth.type == "caller"
        if self.list_auth is not None and (not is_callers or self.list_auth.type == "caller"):
            got = "no auth" if self.auth is None else f'auth with type "{self.auth.type}"'
            raise ConfigError(
                'list_auth requires auth with type "caller", and must have another type itself, '
                f'got {got} and list_auth with type "{self.list_auth.type}"'
            )
        if not is_callers:
            return
        assert self.auth is not None
        if isinstance(self.auth.provider, str):
            raise ConfigError(
                "auth: expected an operad.auth.CredentialProvider as provider, got the name "
                f'"{self.auth.provider}", which only a source of a registry can use'
            )
        if any(name.lower() in ("authorization", "cookie") for name in self.headers):
            raise ConfigError(
                'headers: with type "caller", Authorization and Cookie would be sent for every caller; remove them'
            )

    @property
    def where(self) -> str:
        """The command, the URL or the class of the server, for messages. It contains no secret."""
        if self.command is not None:
            return self.command
        if self.url is not None:
            return shown_url(self.url)
        return type(self.server).__name__


async def maybe_await(value: Any) -> Any:
    """Return the result of a callback. Await it first if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def takes_two(callback: Callable[..., Any]) -> bool:
    """Return True if a callback takes two positional arguments; False also if its signature is unknown."""
    try:
        inspect.signature(callback).bind(None, None)
    except (TypeError, ValueError):  # no second parameter; or the signature is unknown, as for some builtins
        return False
    return True
