"""Text for messages: suggestions for misspelt names, and any object as bounded text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_MANY = 15
"""The number of names that a message lists; of the others it states only the number."""
_LONGEST_NAME = 200
"""The maximum length of a name for which a similar one is looked for, in characters."""
MAX_TEXT = 2_000
"""The maximum length of an object's text in a message, in characters."""
_HTML = 10_000
"""The number of characters of JSON that a notebook shows."""


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the most similar known name, or ``None`` if its similarity is below ``cutoff`` (0 to 1).

    For a name of more than 200 characters, which is no typing error, it returns ``None`` without a search.
    """
    if len(name) > _LONGEST_NAME:
        return None
    from difflib import get_close_matches  # only needed for an error message

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: ``; did you mean "x"?``, or at most 16 known names."""
    names = sorted(known)
    if meant := nearest(name, names):
        return f'; did you mean "{meant}"?'
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY + 1 else ""
    return f"; known: {', '.join(names[:_MANY] if more else names) or 'none'}{more}"


def in_words(error: BaseException) -> str:
    """Return an exception as text, such as ``TypeError: expected a number``; just its type if it has no text."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(value: Any) -> str:
    """Return ``str(value)``, cut after 2,000 characters; the name of its class in ``<>`` if ``__str__`` raises."""
    try:
        text = encodable(str(value))
    except (Exception, SystemExit):  # noqa: BLE001  # any object may come here, with any __str__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def encodable(text: str) -> str:
    """Return the text with lone surrogates escaped. File names may have them, and UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def printable(text: str, longest: int = 200) -> str:
    """Return text from outside made safe for a log: on one line, escaped, cut after ``longest`` characters."""
    if len(text) > longest:
        text = text[:longest] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def html_json(value: Any) -> str:
    """Return a value as indented JSON in an HTML ``<pre>``, for notebooks; cut after 10,000 characters."""
    import json
    from html import escape

    text = json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    return f"<pre>{escape(text if len(text) <= _HTML else text[:_HTML] + '…')}</pre>"


# --- any value as JSON ---------------------------------------------------------------------------------

_MAX_DEPTH = 32
_MAX_NODES = 10_000


def json_safe(value: Any) -> Any:
    """Return a copy of ``value`` that JSON can represent.

    Objects of other types, NaN and infinity become text, and so do objects below depth 32 or after the first
    10,000 containers. The copy is finite, even if the data contain themselves.
    """
    return _json_safe(value, _MAX_DEPTH, itertools.count().__next__)


def _json_safe(value: Any, depth: int, number: Callable[[], int]) -> Any:
    if value is None or value is True or value is False or type(value) is int:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, str):
        return encodable(str(value))  # str(): it may be a StrEnum
    if isinstance(value, int):
        return int(value)
    if depth == 0 or number() >= _MAX_NODES:
        return text_of(value)
    try:
        if isinstance(value, Mapping):
            return {text_of(key): _json_safe(item, depth - 1, number) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_json_safe(item, depth - 1, number) for item in value]
    except Exception:  # noqa: BLE001, S110  # a container of an unknown class that cannot be read; it has a text
        pass
    return text_of(value)
