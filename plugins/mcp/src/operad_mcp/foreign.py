"""Functions that make text of remote servers safe for terminals, logs and models."""

from __future__ import annotations

import re
from typing import Any, TypeVar

MAX_TEXT = 65_536
"""The maximum number of characters of a title, a description or instructions."""
_MESSAGE = 2_000
"""The maximum number of characters of a server's message in an error."""
_TEXTS = ("title", "description")
# Escape sequences of terminals, then invisible characters: controls, marks of direction, half surrogate pairs, and
# tags, which can hold a whole hidden text. Joiners (U+200C, U+200D) belong to scripts and pictures.
_UNSEEN = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?|\x1b[ -/]*[0-~]|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)

T = TypeVar("T")


def visible(text: str) -> str:
    """Return a text without escape sequences and invisible characters."""
    return _UNSEEN.sub("", text)


def clean_text(text: str) -> str:
    """Return the result of `visible`, cut to `MAX_TEXT` characters."""
    cleaned = visible(text[: 2 * MAX_TEXT])
    return cleaned if len(cleaned) <= MAX_TEXT else cleaned[: MAX_TEXT - 1] + "…"


def one_line(text: str) -> str:
    """Return a message for errors and logs: the visible text in one line, cut after 2,000 characters."""
    cleaned = " ".join(visible(text[: 2 * _MESSAGE]).split())
    return cleaned if len(cleaned) <= _MESSAGE else cleaned[:_MESSAGE] + "…"


def clean_words(item: T) -> T:
    """Clean the titles and descriptions in an item of a listing and in its schemas, in place; return the item."""
    waiting: list[Any] = [item]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, found in value.items():
                if isinstance(found, str) and key in _TEXTS:
                    value[key] = clean_text(found)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return item
