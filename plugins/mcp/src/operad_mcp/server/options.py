"""The options for serving a registry as an MCP server. This module does not import the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from operad import ConfigError, Identity
from operad.plugin import record

_WELL_KNOWN = "/.well-known/oauth-protected-resource"


@record(kw_only=True)
class MCPServeConfig:
    """The options for serving a registry as an MCP server, of `to_mcp` and of the table ``[serve.mcp]``."""

    name: str | None = None
    """The server's name. ``None``: the name of the source, or ``operad`` if there is not exactly one source."""
    version: str = "1.0.0"
    """The server's version."""
    title: str | None = None
    """The server's name for people. ``None``: the titles of the sources."""
    instructions: str | None = None
    """Instructions for models that use the server. ``None``: the instructions of the sources."""
    tools: Literal["all", "search", "code"] | None = attrs.field(
        default=None, validator=attrs.validators.in_((None, "all", "search", "code"))
    )
    """``all``: a tool for each operation; ``search``: three tools that search, describe and call; ``code``: the
    three of operad-code, which search, describe and run programs. If ``None``, `search_above` decides.
    """
    search_above: int = 100
    """With more tools than this, the three tools of ``search`` are offered instead of one for each operation."""
    output_values: int = 500
    """The maximum number of JSON values in an output schema. A larger schema is not sent to clients."""
    names: Literal["id", "name"] = attrs.field(default="id", validator=attrs.validators.in_(("id", "name")))
    """How the names of tools and prompts are made: from the whole id, or from the part after the namespace."""
    page_size: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    """The maximum number of entries on a page of a listing."""
    timeout: float | None = 300.0
    """Seconds that a call may take, including the time in which users answer questions; ``None``: no limit."""
    stream_timeout: float = 30.0
    """Seconds after which a subscription that is called as a tool is closed."""
    stream_items: int = 1_000
    """Number of items after which a subscription that is called as a tool is closed."""
    stream_bytes: int = 1024 * 1024
    """Bytes of items after which a subscription that is called as a tool is closed, at most a third of
    ``result_bytes``."""
    result_bytes: int = attrs.field(default=512 * 1024, validator=attrs.validators.ge(1024))
    """The maximum size of a result in bytes.

    Longer text is cut; a tool with an output schema, a resource or a prompt fails with ``PAYLOAD_TOO_LARGE``.
    """
    mask_errors: bool = True
    """Whether undeclared exceptions are replaced by a reference to the log."""
    expose_upstream: bool = False
    """Whether errors show the addresses and headers of upstream servers."""
    identity: Mapping[str, Any] | None = None
    """The caller on standard streams and in memory: ``{id, scopes?, resources?}``; ``None``: anonymous."""
    json_response: bool = False
    """Whether to respond over HTTP with JSON and never with a stream. Clients then receive no progress, no logs
    and no questions.
    """
    resumable: bool = False
    """Whether to keep, over HTTP, the last 256 events of each session of the handshake revisions (to 2025-11-25).
    A client can then resume its streams after its connection broke.
    """
    poll_after: float | None = None
    """Seconds after which the stream of a call is closed, so that the client reconnects for the result. Requires
    `resumable`. ``None``: never.
    """
    max_body: int = 4 * 1024 * 1024
    """The maximum size of a request in bytes."""
    body_timeout: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Seconds within which a request must arrive."""
    max_sessions: int = 10_000
    """The maximum number of sessions of the handshake revisions. At the limit, a new session ends the session
    that was idle longest.
    """
    session_idle: float = 1800.0
    """Seconds after which an unused session of the handshake revisions ends."""
    allowed_hosts: Sequence[str] = ()
    """Accepted values of ``Host`` besides those of this machine: ``name``, ``name:port``, ``name:*``; ``*``: any.
    """
    allowed_origins: Sequence[str] = ()
    """Accepted values of ``Origin`` besides those of this machine."""
    resource_url: str | None = None
    """This server's URL as clients know it (RFC 8707), if an authorization server issues its tokens."""
    authorization_servers: Sequence[str] = ()
    """The issuers of the tokens for this server."""
    scopes_supported: Sequence[str] = ()
    """The scopes that clients may request from the authorization servers."""
    anonymous: bool = False
    """Whether to accept requests without credentials although there is an authenticator or an authorization
    server."""
    state_key: str | None = attrs.field(default=None, repr=False)
    """The secret, of 32 bytes or more, that seals the state that a client keeps between a question and its answer.
    All processes of one address need the same secret. ``None``: a new secret in each process.
    """
    listen: str | None = None
    """``HOST:PORT`` of this machine at which to serve over HTTP. ``None``: standard streams."""

    def __attrs_post_init__(self) -> None:
        if bool(self.resource_url) != bool(self.authorization_servers):
            given = "resource_url" if self.resource_url else "authorization_servers"
            raise ConfigError(
                f"expected resource_url together with authorization_servers, got only {given}; set both, "
                "because the metadata of a protected resource (RFC 9728) has both"
            )
        if self.poll_after is not None and not self.resumable:
            raise ConfigError(
                "poll_after requires resumable = true, got false; set it, so that closed streams resume"
            )
        if self.state_key is not None and len(self.state_key.encode()) < 32:
            got = len(self.state_key.encode())
            raise ConfigError(f"state_key: expected 32 bytes or more of secret randomness, got {got} bytes")
        self.caller  # noqa: B018  # raises if `identity` has the wrong form

    @property
    def caller(self) -> Identity | None:
        """The option `identity` as an `Identity`; ``None`` if it is not set.

        Raises `ConfigError` if it has the wrong form.
        """
        if self.identity is None:
            return None
        try:
            return Identity.from_wire(self.identity)
        except ValueError as error:
            raise ConfigError(f"identity: expected {{id, scopes?, resources?}}: {error}") from error

    @property
    def metadata_url(self) -> str | None:
        """The URL of `resource_metadata` (RFC 9728, 3.1); ``None`` if ``resource_url`` is not set."""
        if self.resource_url is None:
            return None
        parts = urlsplit(self.resource_url)
        return f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{parts.path.rstrip('/')}"

    @property
    def resource_metadata(self) -> dict[str, Any] | None:
        """The metadata of the protected resource (RFC 9728, 2); ``None`` if ``resource_url`` is not set."""
        if self.resource_url is None:
            return None
        document: dict[str, Any] = {
            "resource": self.resource_url,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
            "resource_name": self.title or self.name or "operad",
        }
        return {**document, "scopes_supported": list(self.scopes_supported)} if self.scopes_supported else document
