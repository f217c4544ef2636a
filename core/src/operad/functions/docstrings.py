"""Docstrings of functions, and their sections ``Args:``, which describe parameters."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Collection
from textwrap import dedent
from typing import Any

_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^\*{0,2}(\w+)(?: \([^)\n]*\))?:(.*(?:\n[ \t]+.*)*)", re.MULTILINE)


def split_docstring(text: str, parameters: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return a docstring without its section ``Args:``, and the descriptions in that section by parameter.

    A section that describes none of ``parameters`` stays in the docstring; then the descriptions are empty.
    """
    if (found := _SECTION.search(text)) is None:
        return text, {}
    entries = _ENTRY.findall(dedent(found[1]))
    described = {name: " ".join(words.split()) for name, words in entries if name in parameters and words.strip()}
    parts = (text[: found.start()].rstrip(), text[found.end() :].strip())
    return ("\n\n".join(filter(None, parts)) if described else text), described


def docstring_of(function: Any) -> str:
    """Return the docstring of a function, of a partial's function, or of a callable object; empty if missing."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__ if not vars(type(function)).get("__doc__") else type(function)
    return inspect.getdoc(function) or ""
