"""Media types of documents and of HTTP: constants and parsing."""

from __future__ import annotations

import re
from functools import lru_cache

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
OCTETS = "application/octet-stream"
STREAM_TYPES = frozenset(
    {
        "text/event-stream",
        "application/jsonl",
        "application/x-jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
        "application/ndjson",
        "application/x-ndjson",
        "application/json-seq",
        "application/geo+json-seq",
    }
)
LINE_TYPES = frozenset(kind for kind in STREAM_TYPES if "json" in kind and not kind.endswith("seq"))
EVENT_STREAM = "text/event-stream"
LINES = STREAM_TYPES - {EVENT_STREAM}
"""Streams of JSON: JSON lines, and JSON text sequences (RFC 7464)."""
JSON = "application/json"
"""As the media type of a stream, it means JSON values one after the other."""


_JSON = frozenset({JSON, "text/json", "application/x-json", "text/x-json"})


@lru_cache(maxsize=1024)
def is_json(media_type: str) -> bool:
    """Return True if ``media_type`` (without parameters, lower case) is JSON or one of the ``+json`` family."""
    return media_type in _JSON or media_type.endswith("+json")


@lru_cache(maxsize=1024)
def essence(content_type: str) -> str:
    """Return the first media type in ``content_type``, without parameters and in lower case (RFC 9110, 8.3.1)."""
    return content_type.partition(";")[0].partition(",")[0].strip().lower()


def charset_of(content_type: str) -> str | None:
    """Return the ``charset`` of a content type in lower case, or ``None`` if that parameter is missing."""
    match = re.search(r';\s*charset\s*=\s*"?([^\s";]+)', content_type, re.IGNORECASE)
    return match[1].lower() if match else None
