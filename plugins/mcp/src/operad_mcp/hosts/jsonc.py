"""JSON with comments and trailing commas, as editors write it; and files of environment variables."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import Any

_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read(path: Path) -> str:
    """The text of a file: UTF-8, or what its byte order mark says. Raises `OSError`, `ValueError`."""
    content = path.read_bytes()
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as Windows' shell writes files
    return content.decode("utf-16" if wide else "utf-8-sig")


def loads(text: str) -> Any:
    """The value of a text. Raises `ValueError`, with the line of the text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        # What is left out becomes white space, so that the lines of errors are right.
        bare = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
        return json.loads(_COMMA.sub(lambda match: match[1] or " ", bare))


def variables(text: str) -> dict[str, str]:
    """The variables of a ``.env`` file: ``NAME=value`` per line, quoted or not. Raises `ValueError`."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: expected NAME=value")
        found[match[1]] = _value(match[2])
    return found


def _value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
