"""Words for messages: what was probably meant, and any exception or object as bounded text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_TEXT = 2_000
"""Characters of an object's text that a message keeps."""


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that ``name`` was probably meant to be, at least ``cutoff`` (0 to 1) alike."""
    from difflib import get_close_matches  # only where there is an error to write

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: ``; did you mean "x"?``, or what is known."""
    names = sorted(known)
    meant = nearest(name, names)
    return f'; did you mean "{meant}"?' if meant else f"; known: {', '.join(names) or 'none'}"


def in_words(error: BaseException) -> str:
    """``TypeError: what happened``; the type alone where the error has no text."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(value: Any) -> str:
    """``str(value)``, bounded; a ``__str__`` that raises must not replace the error being reported."""
    try:
        text = encodable(str(value))
    except (Exception, SystemExit):  # noqa: BLE001  # any object may come here, with any __str__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def encodable(text: str) -> str:
    """The text, with what UTF-8 cannot hold escaped: half a surrogate pair, as in names of files."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
