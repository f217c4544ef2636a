"""The subjects of addresses on the server.

A subject is a few tokens joined by dots. White space and the wildcards ``*`` and ``>`` have special meanings, and
a line of the protocol has at most 4,096 bytes. An operation id may contain any text, so each address becomes::

    op:<namespace>.<name>   <prefix>.op.<namespace>.<name>
    all:<topic>             <prefix>.all.<topic>
    queue:<operation id>    <prefix>.queue.<namespace>.<name>    for requests that are stored
    deliver:<operation id>  <prefix>.deliver.<namespace>.<name>  for stored requests that the server pushes
    inbox:<id>              <inbox prefix>.<id>.r

Each token has the percent-encoding of URLs, also for the dots of a name. A token that is too long becomes a
digest. Different addresses have different subjects. The namespace is one token, so that permissions can be given
by namespace: ``<prefix>.op.petstore.*``.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

from operad.plugin import TransportError

MAX_TOKEN = 180
_OPERATIONS = frozenset({"op", "queue", "deliver"})
_INBOX = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}")


def token(text: str) -> str:
    """Return any text as one token of a subject. Different texts give different tokens."""
    # "surrogatepass": an id from JSON may hold a lone surrogate.
    encoded = quote(text, safe="", errors="surrogatepass").replace(".", "%2E")
    if len(encoded) > MAX_TOKEN or not encoded:
        # quote() never leaves a "=", so no short text looks like a digest.
        encoded = "=" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return encoded


def subject_of(address: str, prefix: str, inbox_prefix: str) -> str:
    """Return the subject of an address.

    Raises:
        TransportError: the text is not an address. The id of an inbox may have only letters, digits, "-", "_" and
            dots, because it comes from a peer, which must not name any other subject of the server.
    """
    kind, _, rest = address.partition(":")
    if kind in _OPERATIONS and rest:
        namespace, dot, name = rest.partition(".")
        return f"{prefix}.{kind}.{token(namespace)}.{token(name)}" if dot else f"{prefix}.{kind}.{token(rest)}"
    if kind == "all" and rest:
        return f"{prefix}.all.{token(rest)}"
    if kind == "inbox" and _INBOX.fullmatch(rest):
        return f"{inbox_prefix}.{rest}.r"
    expected = 'an address "op:…", "all:…" or "inbox:…" (an inbox has letters, digits, "-", "_" and dots)'
    raise TransportError(f"expected {expected}, got {address[:200]!r}")


def asked_in(subject: str) -> tuple[str, str]:
    """Return the operation id and the request id that a reply subject of this link contains."""
    _, _, operation, request = subject.rsplit(".", 3)
    return unquote(operation, errors="replace"), unquote(request, errors="replace")
