"""How a registry is served as an MCP server. Needs no SDK."""

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
    """How a registry is served as an MCP server: the options of `to_mcp`, and the table ``[serve.mcp]``."""

    name: str | None = None
    """The server's name. None: the name of its only source, else ``operad``."""
    version: str = "1.0.0"
    """Its version."""
    title: str | None = None
    """A name for people. None: the titles of its sources."""
    instructions: str | None = None
    """What a model should know of the server. None: the descriptions of its sources."""
    tools: Literal["all", "search", "code"] | None = attrs.field(
        default=None, validator=attrs.validators.in_((None, "all", "search", "code"))
    )
    """A tool for each operation; three that search, describe and call; or the three of operad-code, which search,
    describe and run programs. ``None`` decides by `search_above`."""
    search_above: int = 100
    """From how many operations on three tools are better."""
    output_values: int = 500
    """Of how many JSON values an output schema may be made; one that is larger is not told to clients."""
    names: Literal["id", "name"] = attrs.field(default="id", validator=attrs.validators.in_(("id", "name")))
    """What names of tools and prompts are made of: the whole id, or what follows its namespace."""
    page_size: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    """Entries of a listing at a time."""
    timeout: float | None = 300.0
    """Seconds that a call may take, with the time that people take to answer; ``None``: no end."""
    stream_timeout: float = 30.0
    """Seconds that a subscription is followed when it is called as a tool."""
    stream_items: int = 1_000
    """Items after which it is left."""
    stream_bytes: int = 1024 * 1024
    """Bytes after which it is left, at most a third of ``result_bytes``."""
    result_bytes: int = attrs.field(default=512 * 1024, validator=attrs.validators.ge(1024))
    """Bytes of a result. Longer text is cut; a tool with an output schema, a resource or a prompt fails with
    ``PAYLOAD_TOO_LARGE``."""
    mask_errors: bool = True
    """Whether undeclared exceptions are answered by a reference to the log."""
    identity: Mapping[str, Any] | None = None
    """Who calls on standard streams and in memory: ``{id, scopes?, resources?}``; ``None``: nobody."""
    json_response: bool = False
    """Over HTTP, answer JSON and never a stream: no progress, no logs, no questions."""
    resumable: bool = False
    """Over HTTP, keep the last 256 events of each session of the handshake generation, so that a client whose
    connection broke takes up its streams."""
    poll_after: float | None = None
    """Seconds after which the stream of such a call is closed, for the client to come back for its result; with
    `resumable` only. ``None``: never."""
    max_body: int = 4 * 1024 * 1024
    """Bytes of a request."""
    body_timeout: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Seconds in which a request has to come."""
    max_sessions: int = 10_000
    """Sessions of the handshake generation at a time; for one more, the one that was idle longest ends."""
    session_idle: float = 1800.0
    """Seconds after which a session that nobody uses ends."""
    allowed_hosts: Sequence[str] = ()
    """Values of ``Host`` besides those of this machine: ``name``, ``name:port``, ``name:*``; ``*``: any."""
    allowed_origins: Sequence[str] = ()
    """Values of ``Origin`` besides those of this machine."""
    resource_url: str | None = None
    """This server's URL as clients know it (RFC 8707), where an authorization server issues its tokens."""
    authorization_servers: Sequence[str] = ()
    """The issuers of those tokens."""
    scopes_supported: Sequence[str] = ()
    """Scopes that clients may ask those servers for."""
    anonymous: bool = False
    """Whether to accept requests without credentials although there is an authenticator or an authorization
    server."""
    state_key: str | None = attrs.field(default=None, repr=False)
    """The secret, of 32 bytes or more, that seals what a client keeps between a question and its answer; several
    processes of one address need the same. ``None``: a new one in each process."""
    listen: str | None = None
    """``HOST:PORT`` of this machine where `serve` serves over HTTP; None: it serves on standard streams."""

    def __attrs_post_init__(self) -> None:
        if bool(self.resource_url) != bool(self.authorization_servers):
            raise ConfigError(
                "resource_url and authorization_servers go together: the metadata of a protected resource "
                "(RFC 9728) name both"
            )
        if self.poll_after is not None and not self.resumable:
            raise ConfigError("poll_after needs resumable: a stream that is closed has to be taken up again")
        if self.state_key is not None and len(self.state_key.encode()) < 32:
            raise ConfigError("state_key: expected 32 bytes or more of secret randomness")
        self.caller  # noqa: B018  # raises for what is no identity

    @property
    def caller(self) -> Identity | None:
        """`identity`. Raises `ConfigError` if it is none."""
        if self.identity is None:
            return None
        try:
            return Identity.from_wire(self.identity)
        except ValueError as error:
            raise ConfigError(f"identity: expected {{id, scopes?, resources?}}: {error}") from error

    @property
    def metadata_url(self) -> str | None:
        """Where the metadata of the protected resource are (RFC 9728, 3.1)."""
        if self.resource_url is None:
            return None
        parts = urlsplit(self.resource_url)
        return f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{parts.path.rstrip('/')}"

    @property
    def resource_metadata(self) -> dict[str, Any] | None:
        """The metadata of the protected resource (RFC 9728, 2)."""
        if self.resource_url is None:
            return None
        document: dict[str, Any] = {
            "resource": self.resource_url,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
            "resource_name": self.title or self.name or "operad",
        }
        return {**document, "scopes_supported": list(self.scopes_supported)} if self.scopes_supported else document
