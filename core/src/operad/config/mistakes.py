"""Messages about files that are not TOML: they state what to write instead, and quote no line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_AT = re.compile(r"\(at line (\d+), column (\d+)\)")


def not_text(file: Path, data: bytes, error: UnicodeDecodeError) -> str:
    """Return the message about a file that is not UTF-8 text: the reason, the line and the fix."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"{file} is written as UTF-16; save it as UTF-8"
    line = data.count(b"\n", 0, error.start) + 1
    return f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"


def not_toml(file: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return the message about a text that is not TOML: the reason, the line, and a hint at the mistake."""
    found = _AT.search(str(error))
    number = int(found[1]) if found else text.rstrip().count("\n") + 1
    told = str(error).replace("at end of document", f"at line {number}, the end")
    line = text.split("\n")[number - 1]
    hint = next((f"; {hint}" for pattern, hint in _HINTS if re.search(pattern, line)), "")
    return f"{file}:{number}: cannot be read as TOML: {told}{hint}"


_HINTS = (
    (r"^\s*[{\[]\s*[\"{]", "this looks like JSON; TOML has [sources.NAME] and, below it, key = value"),
    ("[“”„‘’«»]", 'the quotes are typographic; write "…"'),
    (r"^\s*(;|//|/\*)", "a comment begins with #"),
    (r"^\s*[\w.\"'-]+\s*:", "TOML has key = value, not key: value"),
    (r"=\s*(True|False|yes|no|on|off|Yes|No)\s*(#.*)?$", "TOML has true and false"),
    (r"=\s*(null|None|nil)\s*(#.*)?$", "leave the key out: TOML has no value for nothing"),
    (r'=\s*"[^"]*\\', "a backslash begins an escape in double quotes; write a path in single quotes, or with /"),
    (r"=\s*\[[^\]]*$", "a [ has no matching ]"),
    (r"=\s*[A-Za-z~./$][^\"'\[{]*$", 'text needs quotes: key = "value"'),
)
"""Patterns of lines, and a hint for each; the hint of the first pattern that matches is shown."""
