"""Configuration of MCP servers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

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
    """The progress of a call, as its server reports it."""

    operation_id: str
    request_id: str | None
    """The id of operad's call."""
    progress: float
    total: float | None = None
    message: str | None = None


@record(kw_only=True)
class MCPCall:
    """A call of operad, as callbacks receive it."""

    server: str
    """The name of the server."""
    operation_id: str | None = None
    """``None`` if a server with several calls in progress does not state to which one its question belongs."""
    request_id: str | None = None
    """The id of operad's call."""
    identity: Identity | None = None
    """The caller."""
    report: Callable[..., None] | None = attrs.field(default=None, repr=False, eq=False)
    """Reports to observers of the call, as `operad.OperationContext.report`; ``None`` without observers."""
    client: CallClient | None = attrs.field(default=None, repr=False, eq=False)
    """The client that waits for the call, if it can be asked; see `client_of`."""


@record(kw_only=True)
class MCPTask:
    """A call that became a task of its server."""

    call: MCPCall
    task_id: str = attrs.field(repr=False)
    """A secret: with it, any client may request the result:

    ``OperationContext(metadata={"mcp": {"task": task_id}})``.
    """
    status: str
    """``working``, ``input_required``, ``completed``, ``failed`` or ``cancelled``."""
    message: str | None = None
    """The server's message about it."""


@record(kw_only=True)
class MCPExtras:
    """Headers and metadata that are sent with one call besides its arguments."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=lambda headers: f"<{len(headers)} headers>")
    """HTTP headers; those of the protocol stay as they are."""
    meta: Mapping[str, Any] = attrs.field(factory=dict, repr=lambda meta: f"<{len(meta)} fields>")
    """Fields of ``_meta``."""


@record(kw_only=True)
class MCPArgument:
    """Changes to an argument of a tool."""

    name: str | None = None
    """Another name for callers."""
    description: str | None = None
    """Another description."""
    value: Any = attrs.field(default=msgspec.UNSET, repr=False)
    """A fixed value; callers neither see nor give the argument."""
    hide: bool = False
    """Neither offer nor send it."""


@record(kw_only=True)
class MCPTool:
    """Changes to a tool: another name, other texts, fewer arguments."""

    name: str | None = None
    """Another name for the operation."""
    title: str | None = None
    """Another name for people."""
    description: str | None = None
    """Another description."""
    hide: bool = False
    """Offer no operation for it."""
    type: Literal["query", "mutation"] | None = None
    """Its type, if its hints are missing or wrong."""
    idempotent: bool | None = None
    """Whether it may run again after a failure, if its hints are missing or wrong."""
    arguments: dict[str, MCPArgument] = attrs.field(factory=dict)
    """By the names that the server gives them."""


@record(kw_only=True)
class MCPAuth:
    """Credentials for an HTTP server: a bearer token, or OAuth through the SDK's providers.

    ``type = "oauth"`` registers this client with the server's authorization server (or uses ``client_id``) and
    uses the token of ``operad login``, renewed when it expires; without one a call fails with
    ``AUTHORIZATION_REQUIRED``. A program can log its users in itself: ``redirect_handler`` is awaited with the URL
    that the user must visit, ``callback_handler`` for the ``code``, ``state`` and (if present) ``iss`` of the
    redirect. ``client_credentials`` needs no user: a ``client_secret``, or a ``private_key`` that signs a JWT (RFC
    7523). ``jwt_bearer`` gets tokens for an ``assertion``: a JWT of the workload's platform, or of an enterprise's
    identity provider.

    ``provider`` is for everything else: an ``httpx2.Auth`` that is used unchanged.
    """

    type: Literal["bearer", "oauth", "client_credentials", "jwt_bearer", "caller", "provider"] = "bearer"
    """The kind of credentials; most of the other keys belong to one or two kinds."""
    token: str | None = attrs.field(default=None, repr=False)
    """For ``bearer``."""
    client_id: str | None = None
    """This client's name at the authorization server."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """Its secret there, if it has one."""
    client_name: str = "operad"
    """The name that users see when they authorize this client."""
    client_metadata_url: str | None = None
    """The URL of a document that serves as client id, if the authorization server supports such ids."""
    token_endpoint_auth_method: str | None = None
    """``none``, ``client_secret_basic`` or ``client_secret_post``; default: one that the server supports."""
    issuer: str | None = None
    """The URL of the authorization server. No other server gets ``client_id``, a registration or the user."""
    scope: str | None = None
    """The scopes to request, separated by spaces; default: those that the server names."""
    redirect_uri: str = "http://127.0.0.1:8763/callback"
    """The address on this machine to which the browser is redirected."""
    redirect_handler: Callable[[str], Awaitable[None]] | None = None
    """Awaited with the URL that the user must visit."""
    callback_handler: Callable[[], Awaitable[Sequence[str | None]]] | None = None
    """Awaited for the parameters of the redirect."""
    account: str = ""
    """The name of one of several accounts of this user."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """PEM; signs instead of ``client_secret`` (``client_credentials``)."""
    signing_algorithm: str = "ES256"
    """The algorithm of ``private_key``."""
    assertion: Any = attrs.field(default=None, repr=False)
    """A JWT (``jwt_bearer``), or ``await assertion(issuer, resource)`` that returns one."""
    store: Any = None
    """An ``operad.auth.TokenStore``, the default, or an object with the four methods of
    ``mcp.client.auth.TokenStorage``."""
    provider: Any = attrs.field(default=None, repr=False)
    """``caller``: the name in ``[[credentials]]``, or an ``operad.auth.CredentialProvider``. ``provider``: an
    ``httpx2.Auth``."""

    def __attrs_post_init__(self) -> None:
        if self.type == "bearer" and not self.token:
            raise ConfigError('auth: type "bearer" needs a token')
        secret = self.client_secret or self.private_key
        if self.type == "oauth" and self.client_secret and not self.issuer:
            raise ConfigError(
                'auth: type "oauth" with client_secret needs issuer, the URL of the authorization server that the '
                "secret belongs to; otherwise any server that the MCP server names would receive it"
            )
        if self.type == "client_credentials" and not (self.client_id and secret and self.issuer):
            raise ConfigError(
                'auth: type "client_credentials" needs client_id, issuer, and client_secret or private_key'
            )
        if self.type == "jwt_bearer" and (not self.issuer or self.assertion is None):
            raise ConfigError('auth: type "jwt_bearer" needs issuer and assertion')
        if self.type == "caller" and self.provider is None:
            raise ConfigError('auth: type "caller" needs provider, the name of a table [[credentials]]')
        if self.type != "caller" and (self.type == "provider") != (self.provider is not None):
            raise ConfigError('auth: type "provider" and provider, an httpx2.Auth, go together')


def _shown_url(url: str | None) -> str:
    return repr(None if url is None else shown_url(url))


def _retries(value: RetryPolicy | int | Mapping[str, Any]) -> RetryPolicy:
    """Return a policy, the number of further attempts, or a table."""
    # No method is safe to repeat in itself: every request is a POST, and its body determines its effect.
    if isinstance(value, Mapping):
        value = {"methods": (), **value}
    elif isinstance(value, int):
        value = {"methods": (), "attempts": value}
    return RetryPolicy.of(value)


@record(kw_only=True)
class MCPClientConfig:
    """The address of one MCP server, and options for its operations. Give ``command``, ``url`` or ``server``."""

    command: str | None = None
    """A program that speaks MCP on its standard streams. Its environment is ``HOME LOGNAME PATH SHELL TERM
    USER`` of this process, what ``inherit_env`` names, and ``env``; nothing else."""
    args: list[str] = attrs.field(factory=list)
    """The program's arguments."""
    env: dict[str, str] = attrs.field(factory=dict, repr=lambda env: f"<{len(env)} variables>")
    """Variables that the program gets."""
    inherit_env: list[str] = attrs.field(factory=list)
    """Variables of this process that the program gets as well, such as ``HTTPS_PROXY`` or ``SSL_CERT_FILE``."""
    cwd: str | None = None
    """The folder that the program starts in."""
    stderr: str | None = None
    """A file to which the program's standard error is appended.

    Without it, messages quote its end, and the debug log has all of it.
    """
    url: str | None = attrs.field(default=None, repr=_shown_url)
    """A server over HTTP."""
    transport: Literal["http", "sse"] = "http"
    """For ``url``: streamable HTTP, or the HTTP+SSE transport of 2024-11-05."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=lambda headers: f"<{len(headers)} headers>")
    """Sent with every request to ``url``."""
    auth: MCPAuth | None = None
    """The credentials of this client at ``url``."""
    list_auth: MCPAuth | None = None
    """With ``auth = {type = "caller", …}``: how this client proves itself when it lists what the server offers. No
    call uses it. ``None``: the listing needs no credential."""
    max_sessions: int = attrs.field(default=1_000, validator=attrs.validators.ge(1))
    """With ``type = "caller"``: the maximum number of sessions. Each credential has its own; the session that was
    idle longest is closed for a new one."""
    session_idle: float = attrs.field(default=300.0, validator=attrs.validators.gt(0))
    """With ``type = "caller"``: seconds without a call after which a session is closed."""
    proxy: str | None = attrs.field(default=None, repr=_shown_url)
    """The URL of a proxy, instead of those that the environment names (``HTTPS_PROXY``, ``NO_PROXY``, …)."""
    tls_ca: str | None = None
    """Path of certificates to trust instead of the system's, PEM."""
    tls_cert: str | None = None
    """Path of this client's own certificate, PEM, with its chain."""
    tls_key: str | None = None
    """Path of its key; may be in the file of ``tls_cert``."""
    retries: RetryPolicy = attrs.field(factory=lambda: RetryPolicy(methods=()), converter=_retries)
    """When a request is sent again after an HTTP status such as 429 or 503: the number of attempts, or a table.

    Only requests that change nothing, or that the server certainly rejected, are repeated: name the statuses of
    the latter in ``also = { POST = [429] }``.
    """
    server: Any = None
    """A server object of the SDK (``MCPServer``, or the low-level ``Server``) in this process."""

    mode: Mode = "auto"
    """``auto`` asks for the stateless protocol (2026-07-28) and falls back to the handshake; ``legacy`` uses the
    handshake directly, which helps if a server never responds to the question.
    """
    connect_timeout: float = 30.0
    """Seconds until a server must be ready."""
    discover_timeout: float = 5.0
    """Seconds that ``auto`` waits for the response of a server that may not support the question."""
    timeout: float | None = 30.0
    """Seconds that a call without a deadline of its own may take; ``None``: no limit."""
    renew_timeout: bool = False
    """Restart the ``timeout`` of a call whenever it reports progress."""
    shutdown_timeout: float = 2.0
    """Seconds that a program has to end by itself, and again after SIGTERM."""
    max_message_bytes: int = 64 * 1024 * 1024
    """The largest message that is accepted from the server."""
    max_pages: int = 1000
    """The maximum number of pages of a listing."""
    max_listing_bytes: int = 256 * 1024 * 1024
    """The maximum size of all pages of a listing together."""

    include: list[str] | None = None
    """Shell patterns of the names to offer; ``None``: all."""
    exclude: list[str] = attrs.field(factory=list)
    """Shell patterns of the names to leave out."""
    overrides: dict[str, MCPTool] = attrs.field(factory=dict)
    """Changes to tools, by the names that the server gives them."""
    pin: bool | str = False
    """Approve the tools of the first listing; hold tools that are new or changed later, and report them.

    True, or the path of a file: the definitions are kept for later processes; ``operad pin --accept`` accepts
    what is held. True without a configuration file: it is held until the source is loaded again.
    """
    start: Literal["load", "first use"] = "load"
    """``first use``: offer the remembered operations, and connect with the first call.

    A server that has never been connected is connected immediately.
    """
    server_operations: bool = False
    """Whether to offer ``server.about``, ``server.ping`` and, if the server completes arguments,
    ``server.complete``.
    """
    tools: bool = True
    """Whether its tools are operations."""
    resources: bool = True
    """``resources.list``, ``resources.read``, ``resources.subscribe``, and an operation per template."""
    prompts: bool = True
    """``prompts.list``, ``prompts.get``, and an operation per prompt."""
    trust_annotations: bool = False
    """Trust ``readOnlyHint``: such a tool is a query, which may be called again after a failure; and
    ``idempotentHint``: such a tool is an idempotent mutation.
    """
    parse_json_text: bool = False
    """Parse the text of a tool as JSON, if the tool declares an output schema but sends no structured content, and
    the value fits the schema.
    """

    elicitation: Elicitation | Literal["caller"] | None = None
    """``await elicitation(params) -> {"action":

    "accept" | "decline" | "cancel", "content": {…}}``; the JSON of the protocol. ``None`` as the result cancels.
    With a second parameter it receives the `MCPCall`. ``caller`` asks the client that waits for the call: the
    terminal of ``operad call``, or the client of a served registry.
    """
    sampling: Sampling | Literal["caller"] | None = None
    """``await sampling(params) -> {"role", "content", "model", …}``; the JSON of the protocol. With a second
    parameter it gets the `MCPCall`. ``caller`` as for ``elicitation``."""
    roots: Roots | Callable[[], Awaitable[Roots]] | None = None
    """URIs (or ``{uri, name}``) in which the server may work, or a function that returns them."""
    on_call: Callable[[MCPCall], Any] | None = None
    """Called before each call; returns (or awaits) its `MCPExtras`, or ``None``."""
    on_task: Callable[[MCPTask], Any] | None = None
    """Called when a call becomes a task, and when the server reports a new state."""
    keep_tasks: bool = False
    """Leave a task running when its call is cancelled or times out; otherwise it is cancelled.

    The task of a call with an idempotency key is always left running: the same call again requests its result.
    """
    on_progress: Callable[[MCPProgress], Any] | None = None
    """Called with the progress of calls; servers are asked for progress only if it is given."""
    on_log: Callable[[Json], Any] | None = None
    """Called with ``{level, logger, data}``; the default is the logger ``operad.mcp``."""
    log_level: LogLevel | None = None
    """The level of log messages to request from the server."""

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("command", "url", "server") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ConfigError(f"an MCP server needs exactly one of command, url and server; got {found}")
        if self.server is not None and not hasattr(self.server, "run"):
            kind = type(self.server).__name__
            raise ConfigError(
                f"server: expected a server of the SDK, such as to_mcp(registry).server(), got {kind}"
            )
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigError("an MCP server's url must start with http:// or https://")
        if self.proxy is not None and not self.proxy.startswith(("http://", "https://")):
            scheme = self.proxy.partition("://")[0] if "://" in self.proxy else "no scheme"
            raise ConfigError(f"proxy: expected a URL with http:// or https://, got {scheme}")
        if self.url is None and self.auth is not None and self.auth.type == "caller":
            raise ConfigError(
                'auth: type "caller" needs a url; a program on standard streams has one credential for all '
                "callers, in env"
            )
        if self.url is None and (self.auth or self.headers):
            raise ConfigError("auth and headers are for servers with a url; a program gets its secrets by env")
        self._check_callers()
        if self.tls_key is not None and self.tls_cert is None:
            raise ConfigError(
                "tls_key without tls_cert: expected the certificate of the key as well; set tls_cert"
            )
        token = {} if self.auth is None or self.auth.token is None else {"the token of auth": self.auth.token}
        for name, value in {**self.headers, **token}.items():
            if not _VALUE.fullmatch(value) or (name not in token and not _NAME.fullmatch(name)):
                raise ConfigError(
                    f"{name!r} cannot be sent as a header: expected ASCII in one line, without spaces around it"
                )
        for name in ("elicitation", "sampling"):
            asked: Any = getattr(self, name)
            if asked is not None and asked != "caller" and not callable(asked):
                raise ConfigError(f'{name}: expected "caller", or in Python a function, got {asked!r}')

    def _check_callers(self) -> None:
        """Check what belongs to credentials of callers. Raises `ConfigError`."""
        is_callers = self.auth is not None and self.auth.type == "caller"
        if self.list_auth is not None and (not is_callers or self.list_auth.type == "caller"):
            raise ConfigError('list_auth: expected the credential of listings beside auth = {type = "caller", …}')
        if not is_callers:
            return
        assert self.auth is not None
        if isinstance(self.auth.provider, str):
            raise ConfigError(
                'auth: type "caller" with the name of a provider is for sources of a registry; here provider is '
                "an operad.auth.CredentialProvider"
            )
        if any(name.lower() in ("authorization", "cookie") for name in self.headers):
            raise ConfigError(
                'headers: with type "caller", Authorization and Cookie would be sent for every caller; remove them'
            )

    @property
    def where(self) -> str:
        """The name of the server in messages; contains no secret."""
        if self.command is not None:
            return self.command
        if self.url is not None:
            return shown_url(self.url)
        return type(self.server).__name__


async def maybe_await(value: Any) -> Any:
    """Return what a callback returned, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def takes_two(callback: Callable[..., Any]) -> bool:
    """Return True if a callback can be called with two positional arguments."""
    try:
        inspect.signature(callback).bind(None, None)
    except (TypeError, ValueError):  # no second parameter; or the signature is unknown, as for some builtins
        return False
    return True
