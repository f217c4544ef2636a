"""The pages that users see: what a client asks for, and why a login failed. No script, no asset, no frame."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from urllib.parse import urlsplit

from operad_auth.http.urls import is_loopback_host
from operad_serve.asgi import Header
from operad_serve.oauth.clients import Client

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:12vh auto;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}h1{font-size:1.4rem}dt{font-weight:600;margin-top:.8rem}dd{margin:0;overflow-wrap:anywhere}"
    "button{font:inherit;padding:.5rem 1.4rem;margin:1.5rem .6rem 0 0;border:1px solid #555;border-radius:6px;"
    "background:#fff;color:#1a1a1a}button.yes{background:#0b57d0;border-color:#0b57d0;color:#fff}"
    "@media(prefers-color-scheme:dark){body,button{background:#1b1b1b;color:#eee}}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # With form-action, browsers would refuse the redirects after the form, to the provider and to the client.
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'".encode(),
    ),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: browsers would then send "Origin: null" with the form.
    (b"referrer-policy", b"same-origin"),
)


def _page(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title}</h1>{body}</main></body></html>"
    ).encode()


def failed(detail: str) -> bytes:
    """Return the page that says why a login cannot go on."""
    return _page("Login failed", f'<p role="alert">{escape(detail)}</p><p>Close this page and log in again.</p>')


def consent(
    client: Client, redirect_uri: str, scopes: list[str], *, action: str, login: str, server: str
) -> bytes:
    """Return the page that asks whether a client may have access.

    Everything that a client chose is text. Where its login returns to is shown beside its name, because any client
    may choose any name.
    """
    items = [escape(scope) for scope in scopes] or ["call operations that need no scope"]
    wanted = "".join(f"<li>{item}</li>" for item in items)
    source = f"<dt>Described by</dt><dd>{escape(client.id)}</dd>" if client.is_document else ""
    return _page(
        "Allow access?",
        f"<p>An application wants to call operations of <b>{escape(server)}</b> as you.</p><dl>"
        f'<dt>It calls itself</dt><dd id="client">{escape(client.name or "(no name)")}</dd>{source}'
        f'<dt>Access goes to</dt><dd id="target">{escape(_place(redirect_uri))}</dd>'
        f'<dt>It may</dt><dd><ul id="scopes">{wanted}</ul></dd></dl>'
        "<p>Allow it only if you have just started this login in that application.</p>"
        f'<form method="post" action="{escape(action)}"><input type="hidden" name="login" value="{escape(login)}">'
        '<button class="yes" name="answer" value="allow">Allow</button>'
        '<button name="answer" value="deny">Deny</button></form>',
    )


def _place(redirect_uri: str) -> str:
    """Return where a login returns to, as a user recognizes it."""
    parts = urlsplit(redirect_uri)
    if parts.scheme == "http" or is_loopback_host(parts.hostname or ""):
        return f"an application on this computer ({parts.netloc})"
    return parts.netloc if parts.scheme == "https" else f"an application on this computer ({parts.scheme}:)"
