"""The clients of the authorization server: registered ones (RFC 7591), and those that a document describes.

Nothing that a client states about itself is trusted: its name is only shown, its redirect URIs are checked.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from operad import CallError
from operad_auth.http.urls import is_loopback_host, shown_url
from operad_serve.oauth.documents import fetch_document
from operad_serve.oauth.options import ANY, OAuthServerOptions
from operad_serve.oauth.store import MAX_CLIENTS, Store, digest

MAX_REDIRECTS = 10
"""The maximum number of redirect URIs of a client."""
MAX_URI = 2_000
"""The maximum length of a redirect URI and of a client id, in characters."""
MAX_NAME = 80
"""How many characters of a client's name are shown."""
_DOCUMENTS = 1_000
"""How many documents are kept."""
_DOCUMENT_SECONDS = 300.0
_FETCHES = 4
"""How many documents are fetched at the same time. Their hosts may be slow on purpose."""
_WAIT = 5.0
"""Seconds that a login may wait until it may fetch a document."""
_METHODS = ("none", "client_secret_post", "client_secret_basic")
_GRANTS = ("authorization_code", "refresh_token")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[!#-;=?-\[\]_a-z~]+", re.IGNORECASE)  # no space, ", <, >, \, ^, `, {, |, }


class RefusedClient(Exception):
    """The error for a client that is not accepted. Its message is for the author of the client.

    Args:
        detail: the message: what was expected, and how to fix it.
        error: the error code (RFC 7591, 3.2.2).
    """

    def __init__(self, detail: str, error: str = "invalid_client_metadata") -> None:
        super().__init__(detail)
        self.error = error


@attrs.frozen(kw_only=True)
class Client:
    """An OAuth client: its id, its redirect URIs, and how it authenticates."""

    id: str
    name: str
    redirect_uris: list[str]
    secret: str | None = attrs.field(default=None, repr=False)
    """The SHA-256 digest of the client's secret, in hexadecimal; None for a public client."""
    refreshes: bool = True
    """Whether the client gets refresh tokens."""

    @property
    def is_document(self) -> bool:
        """Whether the client's id is the URL of the document that describes it."""
        return is_document_url(self.id)

    def allows(self, redirect_uri: str) -> bool:
        """Return True for a redirect URI of the client. Ports of loopback hosts are ignored (RFC 8252, 7.3)."""
        return redirect_uri in self.redirect_uris or any(
            _is_same_but_port(known, redirect_uri) for known in self.redirect_uris
        )

    def proves(self, secret: str | None) -> bool:
        """Return True if ``secret`` is the client's secret. A public client proves itself with None."""
        if self.secret is None:
            return secret is None
        return secret is not None and hmac.compare_digest(digest(secret).hex(), self.secret)


def is_document_url(client_id: str) -> bool:
    """Return True if a client id is the URL of a document, and not an id that this server issued."""
    return client_id.startswith("https://")


class Clients:
    """The clients of the server: registered ones in the store, and fetched documents for 5 minutes."""

    def __init__(self, options: OAuthServerOptions, store: Store) -> None:
        self._options = options
        self._store = store
        self._documents: OrderedDict[str, tuple[float, Client | RefusedClient]] = OrderedDict()
        self._places = asyncio.Semaphore(_FETCHES)

    def registered(self, id: str) -> Client | None:
        """Return the registered client with an id; None if the id is unknown."""
        record = self._store.client(id)
        return None if record is None else Client(**record)

    def of_grant(self, id: str) -> Client | None:
        """Return the client that redeems a grant; None if it is not registered.

        A client with a document has neither name nor redirect URIs here, because the document is not read again.
        """
        return Client(id=id, name="", redirect_uris=[]) if is_document_url(id) else self.registered(id)

    async def for_login(self, id: str) -> Client:
        """Return the client that begins a login.

        Raises `RefusedClient` if it is not registered, or its document cannot be read or is not accepted.
        """
        if not is_document_url(id):
            found = self.registered(id)
            if found is None:
                raise RefusedClient(
                    f"client {id!r:.100} is not registered here; delete the login to this server in the "
                    "application, and log in again"
                )
            return found
        kept = self._documents.get(id)
        if kept is None or kept[0] < time.monotonic():
            self._documents.pop(id, None)
            try:
                async with asyncio.timeout(_WAIT):
                    await self._places.acquire()
            except TimeoutError:
                raise RefusedClient("too many documents of clients are being read; try again") from None
            try:
                outcome = await self._document(id)
            finally:
                self._places.release()
            self._documents[id] = kept = time.monotonic() + _DOCUMENT_SECONDS, outcome
            while len(self._documents) > _DOCUMENTS:
                self._documents.popitem(last=False)
        if isinstance(kept[1], RefusedClient):
            raise kept[1]
        return kept[1]

    async def _document(self, url: str) -> Client | RefusedClient:
        try:
            host = _host_of_document(url)
            hosts = self._options.client_hosts
            is_listed = host in hosts
            if not is_listed and ANY not in hosts:
                fix = "add the host to client_hosts in [serve.oauth]"
                raise RefusedClient(f"clients of {host} are not accepted; {fix}")
            document = json.loads(await fetch_document(url, is_private=is_listed))
            if not isinstance(document, Mapping) or document.get("client_id") != url:
                got = _shown(document.get("client_id") if isinstance(document, Mapping) else document)
                raise RefusedClient(
                    f"the client's document: expected a JSON object with its own URL as client_id, got {got}"
                )
            if document.get("token_endpoint_auth_method", "none") != "none" or "client_secret" in document:
                expected = 'expected token_endpoint_auth_method "none" and no client_secret'
                got = _shown(document.get("token_endpoint_auth_method", "none"))
                got = "a client_secret" if "client_secret" in document else got
                raise RefusedClient(f"the client's document: {expected}, got {got}")
            return self._client(url, document)
        except RefusedClient as refused:
            return refused
        except (CallError, ValueError, RecursionError) as error:
            reason = error.message if isinstance(error, CallError) else f"{type(error).__name__}: {error}"
            return RefusedClient(f"the client's document cannot be read: {reason}")

    async def register(self, metadata: Any) -> dict[str, Any]:
        """Register a client by its metadata (RFC 7591, 2), and return the response.

        Raises `RefusedClient` if the metadata are not accepted, or there are too many clients.
        """
        if not isinstance(metadata, Mapping):
            raise RefusedClient(f"expected a JSON object with redirect_uris, got {type(metadata).__name__}")
        client = self._client(secrets.token_hex(16), metadata)
        method = metadata.get("token_endpoint_auth_method", "client_secret_basic")
        if method not in _METHODS:
            expected = f"expected one of {', '.join(_METHODS)}, got {_shown(method)}"
            raise RefusedClient(f"token_endpoint_auth_method: {expected}")
        secret = None if method == "none" else secrets.token_urlsafe(32)
        client = attrs.evolve(client, secret=None if secret is None else digest(secret).hex())
        if not await self._store.add_client(client.id, attrs.asdict(client)):
            raise RefusedClient(f"{MAX_CLIENTS} clients are registered already; try again later")
        response = {
            "client_id": client.id,
            "client_id_issued_at": int(time.time()),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "token_endpoint_auth_method": method,
            "grant_types": list(_GRANTS) if client.refreshes else [_GRANTS[0]],
            "response_types": ["code"],
        }
        return response if secret is None else {**response, "client_secret": secret, "client_secret_expires_at": 0}

    def _client(self, id: str, metadata: Mapping[str, Any]) -> Client:
        """Return the client that metadata describe. Fields that are not used here are ignored."""
        uris = metadata.get("redirect_uris")
        if not isinstance(uris, list) or not 1 <= len(uris) <= MAX_REDIRECTS:
            got = f"{len(uris)} URIs" if isinstance(uris, list) else type(uris).__name__
            why = f"redirect_uris: expected a list of 1 to {MAX_REDIRECTS} URIs, got {got}"
            raise RefusedClient(why, "invalid_redirect_uri")
        for uri in uris:
            self._check_redirect(uri)
        grants = metadata.get("grant_types", list(_GRANTS))
        responses = metadata.get("response_types", ["code"])
        if not isinstance(grants, list) or _GRANTS[0] not in grants:
            raise RefusedClient(f"grant_types: expected a list with authorization_code, got {_shown(grants)}")
        if not isinstance(responses, list) or "code" not in responses:
            raise RefusedClient(f"response_types: expected a list with code, got {_shown(responses)}")
        name = metadata.get("client_name")
        shown = "".join(c for c in name if c.isprintable()).strip()[:MAX_NAME] if isinstance(name, str) else ""
        return Client(id=id, name=shown, redirect_uris=uris, refreshes=_GRANTS[1] in grants)

    def _check_redirect(self, uri: Any) -> None:
        """Raise `RefusedClient` unless a login may return to a URI."""

        def refused(why: str) -> RefusedClient:
            return RefusedClient(f"redirect_uris: {why}", "invalid_redirect_uri")

        if not isinstance(uri, str) or len(uri) > MAX_URI or not _URI.fullmatch(uri) or "#" in uri:
            got = _shown_uri(uri) if isinstance(uri, str) else _shown(uri)
            raise refused(
                f"expected an absolute URI without a fragment, of at most {MAX_URI} characters, got {got}"
            )
        parts, host = _split(uri)
        scheme = parts.scheme
        if "@" in parts.netloc:
            raise refused(f'expected a URI without a user name, got one for "{host:.100}"')
        if scheme == "https":
            hosts = self._options.redirect_hosts
            if not host:
                raise refused(f"expected a URI with a host, got {_shown_uri(uri)}")
            if not (ANY in hosts or host in hosts or is_loopback_host(host)):
                raise refused(f'host "{host:.100}" is not allowed; add it to redirect_hosts in [serve.oauth]')
        elif scheme == "http":
            if not is_loopback_host(host):
                raise refused(f'expected https for "{host:.100}"; http is only for 127.0.0.1, [::1] and localhost')
        elif "." not in scheme and scheme not in self._options.redirect_schemes:
            raise refused(f'scheme "{scheme:.100}" is not allowed; add it to redirect_schemes in [serve.oauth]')


def _shown(value: Any) -> str:
    """Return what a client sent, in at most 100 characters; only the type of a value that may be nested."""
    is_flat = all(isinstance(item, str) for item in (value if isinstance(value, list) else [value]))
    return repr(value)[:100] if is_flat else type(value).__name__


def _shown_uri(uri: str) -> str:
    """Return a URI for a message, which states that the parts that may be secret are left out."""
    return f"{_shown(shown_url(uri))} (shown without user name, query and fragment), {len(uri)} characters"


def _split(uri: str) -> tuple[Any, str]:
    """Return the parts of a URI and its host. Raises `RefusedClient` for a malformed host or port."""
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018  # raises for one that is not a number
        return parts, (parts.hostname or "").rstrip(".")
    except ValueError:
        why = f"expected a URI with a valid host and port, got {_shown(shown_url(uri))}"
        raise RefusedClient(why, "invalid_redirect_uri") from None


def _is_same_but_port(known: str, given: str) -> bool:
    """Return True for two http URIs of this machine that differ in their ports only."""
    if len(given) > MAX_URI or not _URI.fullmatch(given):
        return False
    try:
        (one, host), (other, host_of_other) = _split(known), _split(given)
    except RefusedClient:
        return False
    return (
        one.scheme == other.scheme == "http"
        and host == host_of_other
        and is_loopback_host(host)
        and "@" not in other.netloc
        and (one.path, one.query, one.fragment) == (other.path, other.query, other.fragment)
        and "#" not in given
    )


def _host_of_document(url: str) -> str:
    """Return the host of a document's URL, with the port unless it is 443. Raises `RefusedClient` if invalid."""
    parts, host = _split(url)
    is_plain = _URI.fullmatch(url) and len(url) <= MAX_URI and not parts.fragment and "#" not in url
    segments = parts.path.split("/")
    if not is_plain or not host or "@" in parts.netloc or parts.path in ("", "/") or {".", ".."} & {*segments}:
        expected = (
            f"expected a URL of at most {MAX_URI} characters with a path, without user name, fragment, . and .."
        )
        raise RefusedClient(f"client_id: {expected}, got {_shown_uri(url)}")
    if parts.port not in (None, 443):
        return f"{host}:{parts.port}"
    return host
