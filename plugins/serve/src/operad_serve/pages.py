"""HTML pages on which users log in or connect an account. They have no scripts, other files or frames."""

from __future__ import annotations

import base64
import hashlib

from operad_serve.asgi import Exchange, Header

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:12vh auto;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}h1{font-size:1.4rem}dt{font-weight:600;margin-top:.8rem}dd{margin:0;overflow-wrap:anywhere}"
    "input{font:inherit;padding:.5rem;margin:.6rem 0;width:100%;box-sizing:border-box}"
    "button{font:inherit;padding:.5rem 1.4rem;margin:1.5rem .6rem 0 0;border:1px solid #555;border-radius:6px;"
    "background:#fff;color:#1a1a1a}button.yes{background:#0b57d0;border-color:#0b57d0;color:#fff}"
    "@media(prefers-color-scheme:dark){body,input,button{background:#1b1b1b;color:#eee}}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # Browsers would apply form-action to the redirects that follow a form, which lead to other hosts.
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'".encode(),
    ),
    (b"x-frame-options", b"DENY"),
    # With no-referrer, browsers would send "Origin: null" with a form.
    (b"referrer-policy", b"same-origin"),
)
"""The headers of a page, and of a redirect from a page."""


async def show(exchange: Exchange, status: int, title: str, body: str) -> None:
    """Send an HTML page. The caller must escape ``title`` and ``body``."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title}</h1><div>{body}</div></main></body></html>"
    ).encode()
    await exchange.start(status, [*HEADERS, (b"content-length", str(len(page)).encode())])
    await exchange.write(page, more=False)
