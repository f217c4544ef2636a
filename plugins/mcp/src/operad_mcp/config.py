"""Configuration of MCP servers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from operad import ConfigError

Json = dict[str, Any]
Elicitation = Callable[[Json], Awaitable[Json | None]]
Sampling = Callable[[Json], Awaitable[Json]]
Roots = Sequence[str | Mapping[str, Any]]
Mode = Literal["auto", "legacy", "2026-07-28"]
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@attrs.frozen
class MCPProgress:
    """How far a call has come, as its server tells."""

    operation_id: str
    request_id: str | None
    """The id of operad's call."""
    progress: float
    total: float | None = None
    message: str | None = None


@attrs.frozen(kw_only=True)
class MCPAuth:
    """Credentials for an HTTP server: a bearer token, or OAuth through the SDK's providers.

    ``type = "oauth"`` registers this client with the server's authorization server (or takes ``client_id``),
    awaits ``redirect_handler`` with the URL that the user has to visit, and ``callback_handler`` for the ``code``,
    ``state`` and (where there was one) ``iss`` that came back. ``client_credentials`` needs no user. Tokens live
    in ``store``; the default is the system's keyring where the package ``keyring`` is installed, else the memory
    of this process. ``provider`` is for everything else: an ``httpx2.Auth`` that is taken as it is.
    """

    type: Literal["bearer", "oauth", "client_credentials", "provider"] = "bearer"
    token: str | None = attrs.field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = attrs.field(default=None, repr=False)
    client_name: str = "operad"
    client_metadata_url: str | None = None
    """A document that is this client's id, where the authorization server takes such ids."""
    token_endpoint_auth_method: str | None = None
    """``none``, ``client_secret_basic`` or ``client_secret_post``; chosen by what the server supports."""
    issuer: str | None = None
    """The authorization server that ``client_id`` belongs to; it is given to no other."""
    scope: str | None = None
    redirect_uri: str = "http://127.0.0.1:8763/callback"
    redirect_handler: Callable[[str], Awaitable[None]] | None = None
    callback_handler: Callable[[], Awaitable[Sequence[str | None]]] | None = None
    store: Any = None
    """An object with the four methods of ``mcp.client.auth.TokenStorage``."""
    provider: Any = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.type == "bearer" and not self.token:
            raise ConfigError('auth: type "bearer" needs a token')
        if self.type == "client_credentials" and not (self.client_id and self.client_secret and self.issuer):
            raise ConfigError('auth: type "client_credentials" needs client_id, client_secret and issuer')
        if (self.type == "provider") != (self.provider is not None):
            raise ConfigError('auth: type "provider" and provider, an httpx2.Auth, go together')


def _shown(url: str | None) -> str | None:
    """A URL without what may be secret in it: user, password, query."""
    if url is None:
        return None
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


@attrs.frozen(kw_only=True)
class MCPClientConfig:
    """How to reach one MCP server, and how to treat what it offers. Give ``command``, ``url`` or ``server``."""

    command: str | None = None
    """A program that speaks MCP on its standard streams. Its environment is ``HOME LOGNAME PATH SHELL TERM
    USER`` of this process and ``env``, nothing else."""
    args: list[str] = attrs.field(factory=list)
    env: dict[str, str] = attrs.field(factory=dict, repr=lambda env: f"<{len(env)} variables>")
    cwd: str | None = None
    url: str | None = attrs.field(default=None, repr=lambda url: repr(_shown(url)))
    """A server over HTTP."""
    transport: Literal["http", "sse"] = "http"
    """For ``url``: streamable HTTP, or the HTTP+SSE transport of 2024-11-05."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=lambda headers: f"<{len(headers)} headers>")
    auth: MCPAuth | None = None
    server: Any = None
    """A server object of the SDK (``MCPServer``, or the low-level ``Server``) in this process."""

    mode: Mode = "auto"
    """``auto`` asks for the stateless protocol (2026-07-28) and falls back to the handshake; ``legacy`` shakes
    hands at once, which saves the question to a server that never answers it."""
    connect_timeout: float = 30.0
    """Seconds until a server has to be ready."""
    discover_timeout: float = 5.0
    """Seconds that ``auto`` waits for the answer of a server that may not know the question."""
    timeout: float | None = 30.0
    """Seconds that a call without a deadline of its own may take; ``None``: for ever."""
    shutdown_timeout: float = 2.0
    """Seconds that a program gets to end by itself, and again after SIGTERM."""
    max_message_bytes: int = 64 * 1024 * 1024
    """The largest message that is taken from the server."""
    max_pages: int = 1000
    """The most pages of a listing that are followed."""

    include: list[str] | None = None
    """Shell patterns of the names to take; ``None``: all."""
    exclude: list[str] = attrs.field(factory=list)
    """Shell patterns of the names to leave out."""
    tools: bool = True
    resources: bool = True
    """``resources.list``, ``resources.read``, ``resources.subscribe``, and an operation per template."""
    prompts: bool = True
    """``prompts.list``, ``prompts.get``, and an operation per prompt."""
    trust_annotations: bool = False
    """Believe ``readOnlyHint``: such a tool is a query, which may be called again after a failure; and
    ``idempotentHint``: such a tool is an idempotent mutation."""
    parse_json_text: bool = False
    """Take the text of a tool that declares an output schema but sends no structured content as JSON, if it
    fits the schema."""

    elicitation: Elicitation | None = None
    """``await elicitation(params) -> {"action": "accept" | "decline" | "cancel", "content": {…}}``; the JSON of
    the protocol. ``None`` as the answer cancels."""
    sampling: Sampling | None = None
    """``await sampling(params) -> {"role", "content", "model", …}``; the JSON of the protocol."""
    roots: Roots | Callable[[], Awaitable[Roots]] | None = None
    """URIs (or ``{uri, name}``) that the server may work in, or a function that answers them."""
    on_progress: Callable[[MCPProgress], Any] | None = None
    """Called with the progress of calls; asked of servers only if given."""
    on_log: Callable[[Json], Any] | None = None
    """Called with ``{level, logger, data}``; the default is the logger ``operad.mcp``."""
    log_level: LogLevel | None = None
    """What to ask the server to log."""

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("command", "url", "server") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ConfigError(f"an MCP server needs exactly one of command, url and server; got {found}")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigError("an MCP server's url has to start with http:// or https://")
        if self.url is None and (self.auth or self.headers):
            raise ConfigError("auth and headers are for servers with a url; a program gets its secrets by env")

    @property
    def where(self) -> str:
        """What to call the server in messages; holds no secret."""
        if self.command is not None:
            return self.command
        if self.url is not None:
            return _shown(self.url) or ""
        return type(self.server).__name__


def load_mcp_servers(path: str | Path) -> dict[str, MCPClientConfig]:
    """The servers of an ``mcpServers`` file, the shape that MCP hosts use; disabled ones are left out.

    ``${VAR}`` and ``${VAR:-default}`` come from the environment.

    Raises:
        ConfigError: the file cannot be read, or a server's entry cannot be used.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from error
    servers = None
    if isinstance(document, dict):
        servers = document.get("mcpServers", document.get("servers"))  # VS Code says "servers"
    if not isinstance(servers, dict):
        raise ConfigError(f'{path}: expected an object with "mcpServers"')
    return {
        name: _server(entry, f"{path}: mcpServers.{name}")
        for name, entry in servers.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    }


_TRANSPORTS: Mapping[str, Literal["http", "sse"]] = {
    "http": "http", "streamable-http": "http", "streamableHttp": "http", "sse": "sse",
}  # fmt: skip
_URL_KEYS = ("url", "serverUrl", "httpUrl")


def _server(entry: Any, where: str) -> MCPClientConfig:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected an object, got {type(entry).__name__}")
    entry = _expand(entry, where)
    url = next((entry[key] for key in _URL_KEYS if entry.get(key)), None)
    kind = entry.get("type", entry.get("transport", "http"))
    values: dict[str, Any] = {"command": entry.get("command"), "url": url}
    if url is not None:
        if kind not in _TRANSPORTS:
            raise ConfigError(f"{where}.type: expected one of {', '.join(_TRANSPORTS)} for a server with a url")
        values["transport"] = _TRANSPORTS[kind]
    for key, kinds in (("args", list), ("env", dict), ("headers", dict), ("cwd", str)):
        if entry.get(key) is not None:
            if not isinstance(entry[key], kinds):
                raise ConfigError(f"{where}.{key}: expected {kinds.__name__}, got {type(entry[key]).__name__}")
            values[key] = entry[key]
    for key in ("env", "headers"):
        values[key] = {str(name): str(value) for name, value in values.get(key, {}).items()}
    if url is None:
        values.pop("headers")
    try:
        return MCPClientConfig(**{**values, "args": [str(arg) for arg in values.get("args", ())]})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _expand(value: Any, where: str) -> Any:
    import os
    import re

    if isinstance(value, str):

        def replace(match: re.Match[str]) -> str:
            found = os.environ.get(match[1], match[2])
            if found is None:
                raise ConfigError(f"{where} wants the environment variable {match[1]}, which is not set")
            return found

        return re.sub(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}", replace, value)
    if isinstance(value, dict):
        return {key: _expand(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, where) for item in value]
    return value
