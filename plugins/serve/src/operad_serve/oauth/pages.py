"""The pages of a login: the request for consent, and the failure. Each page is a title and a body in HTML."""

from __future__ import annotations

from html import escape
from urllib.parse import urlsplit

from operad_auth.http.urls import is_loopback_host
from operad_serve.oauth.clients import Client


def failed(detail: str) -> tuple[str, str]:
    """Return the page that shows why a login failed."""
    return "Login failed", f'<p role="alert">{escape(detail)}</p><p>Close this page and log in again.</p>'


def consent(
    client: Client, redirect_uri: str, scopes: list[str], *, action: str, login: str, server: str
) -> tuple[str, str]:
    """Return the page that asks whether a client may have access.

    All texts of the client are escaped. The page also shows where the login returns to, because any client may
    choose any name.

    Args:
        client: the client.
        redirect_uri: the URI to which the login returns.
        scopes: the scopes that the client requests.
        action: the URL that receives the form.
        login: the key of the login, for the form.
        server: the name of this server, as users know it.
    """
    items = [escape(scope) for scope in scopes] or ["call operations that need no scope"]
    wanted = "".join(f"<li>{item}</li>" for item in items)
    source = f"<dt>Described by</dt><dd>{escape(client.id)}</dd>" if client.is_document else ""
    body = (
        f"<p>An application wants to call operations of <b>{escape(server)}</b> as you.</p><dl>"
        f'<dt>It calls itself</dt><dd id="client">{escape(client.name or "(no name)")}</dd>{source}'
        f'<dt>Access goes to</dt><dd id="target">{escape(_place(redirect_uri))}</dd>'
        f'<dt>It may</dt><dd><ul id="scopes">{wanted}</ul></dd></dl>'
        "<p>Allow it only if you have just started this login in that application.</p>"
        f'<form method="post" action="{escape(action)}"><input type="hidden" name="login" value="{escape(login)}">'
        '<button class="yes" name="answer" value="allow">Allow</button>'
        '<button name="answer" value="deny">Deny</button></form>'
    )
    return "Allow access?", body


def _place(redirect_uri: str) -> str:
    """Return where a login returns to, as a user recognizes it."""
    parts = urlsplit(redirect_uri)
    if parts.scheme == "http" or is_loopback_host(parts.hostname or ""):
        return f"an application on this computer ({parts.netloc})"
    return parts.netloc if parts.scheme == "https" else f"an application on this computer ({parts.scheme}:)"
