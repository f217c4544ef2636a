"""The metadata of an authorization server (RFC 8414; OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from operad.errors import ConfigError
from operad_auth.fetching import Fetch, require_secure
from operad_auth.http.urls import shown_url


async def discover(issuer: str, fetch: Fetch) -> dict[str, Any]:
    """Load and return the metadata of an issuer, from the first well-known URL that returns a JSON object.

    Raises:
        ConfigError: the issuer is not a secure URL, publishes no metadata, or its metadata name another issuer
            (RFC 8414, 3.3).
        CallError: ``UNAVAILABLE`` if ``fetch`` gets no usable response.
    """
    require_secure(issuer, "issuer")
    got_instead: dict[str, None] = {}
    for url in well_known_urls(issuer):
        answer = await fetch("GET", url, headers={"Accept": "application/json"})
        metadata = answer.json() if answer.status == 200 else None
        if not isinstance(metadata, dict):
            got_instead[answer.summary()] = None
            continue
        if metadata.get("issuer") != issuer:
            got = f'"{shown_url(str(metadata["issuer"])):.300}"' if "issuer" in metadata else "none"
            raise ConfigError(
                f'{shown_url(url)}: expected issuer "{shown_url(issuer)}", got {got}; correct the issuer'
            )
        return metadata
    raise ConfigError(
        f"{shown_url(issuer)}: expected metadata (RFC 8414) with HTTP 200 at a well-known URL, got "
        f"{', '.join(got_instead)}; correct the issuer, or set the URLs of its endpoints in the configuration"
    )


def well_known_urls(issuer: str) -> list[str]:
    """Return the possible URLs of an issuer's metadata in the order to try (RFC 8414, 3.1; OpenID Discovery)."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    paths = [
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ]
    return [urlunsplit((parts.scheme, parts.netloc, each, "", "")) for each in dict.fromkeys(paths)]
