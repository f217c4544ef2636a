"""Errors about files that are not TOML: they say what to write instead and quote no line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_AT = re.compile(r"\(at line (\d+), column (\d+)\)")


def not_text(file: Path, data: bytes, error: UnicodeDecodeError) -> str:
    """Why the bytes of a file are no text."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"{file} is written as UTF-16; save it as UTF-8"
    line = data.count(b"\n", 0, error.start) + 1
    return f"{file}:{line}: byte 0x{data[error.start]:02x} is no UTF-8; save the file as UTF-8"


def not_toml(file: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """Why a text is no TOML, where, and what is probably meant."""
    last = text.rstrip().count("\n") + 1
    # The end is where TOML's reader notes what goes on for too long, or is there twice.
    told = str(error).replace("at end of document", f"at line {last}, the end")
    told = re.sub(r"^Cannot declare \((.*?),?\) twice", _twice, told)
    if told.startswith("Cannot overwrite a value"):
        told = told.replace("Cannot overwrite a value", "the key is there twice, or is a table and a value", 1)
    found = _AT.search(str(error))
    number = int(found[1]) if found else last
    lines = text.split("\n")
    line = lines[number - 1] if number <= len(lines) else ""
    hint = _hint(told, line, "\n".join(lines[max(0, number - 4) : number]), text)
    return f"{file}:{number}: cannot be read as TOML: {told}{hint and f'; {hint}'}"


def _twice(found: re.Match[str]) -> str:
    return f"[{'.'.join(_QUOTED.findall(found[1]))}] is there twice"


_QUOTED = re.compile(r"""['"](.*?)['"]""")


_HINTS = (
    (r"^\s*[{\[]\s*[\"{]", "this looks like JSON; TOML writes [sources.NAME] and, below it, key = value"),
    ("[“”„‘’«»]", 'the quotes are typographic ones; write "…"'),
    (r"^\s*(;|//|/\*)", "a comment begins with #"),
    (r"^\s*[\w.\"'-]+\s*:", "TOML writes key = value, not key: value"),
    (r"=\s*(True|False|yes|no|on|off|Yes|No)\s*(#.*)?$", "TOML writes true and false"),
    (r"=\s*(null|None|nil)\s*(#.*)?$", "leave the key out: TOML has no value for nothing"),
    (r"[\"'\]}\w],\s*(#.*)?$", "no comma stands at the end of a line"),
    (r"=\s*[A-Za-z~./$][^\"'\[{]*$", 'a text stands in quotes: key = "value"'),
    (r"^\s*[\w.\"'-]+\s*=\s*(#.*)?$", "the value is missing"),
)
"""What a line looks like -> what to do about it; the first that fits counts."""


def _hint(told: str, line: str, around: str, text: str) -> str:
    if "Unescaped '\\'" in told or "Invalid hex value" in told:
        return "in double quotes a backslash begins an escape; write a path in single quotes, 'C:\\…', or with /"
    if "twice" in told:
        return "remove one of them"
    if around.count("{") > around.count("}") and "key" in told:
        return "a table in braces stands on one line; several lines are a table of their own, [sources.NAME.auth]"
    if text.lstrip()[:1] == "{":
        line = text.lstrip()[:80]
    return next((hint for pattern, hint in _HINTS if re.search(pattern, line)), "")
