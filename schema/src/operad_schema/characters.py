r"""The sets of characters that ECMA-262 defines: `\d`, `\w`, `\s`, `.`, and common ones of `\p{…}`.

Python's `re` defines them differently (`\s` has U+001C and lacks U+FEFF, `\d` has the digits of every script), so
each set is written as ranges.
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache

Ranges = tuple[tuple[int, int], ...]
"""Ranges of code points, ends included, in order."""

_LAST = 0x10FFFF
_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
                  (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF))  # fmt: skip
_HEX: Ranges = ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))


def complement(ranges: Ranges) -> Ranges:
    """Return the ranges of all characters that are not in `ranges`."""
    out = []
    start = 0
    for low, high in ranges:
        if low > start:
            out.append((start, low - 1))
        start = high + 1
    if start <= _LAST:
        out.append((start, _LAST))
    return tuple(out)


def character_class(ranges: Ranges) -> str:
    """Return ranges in the syntax of a character class of RE2, without brackets."""
    return "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" if high > low else f"\\x{{{low:x}}}" for low, high in ranges)


CLASSES = {
    "d": character_class(_DIGIT),
    "D": character_class(complement(_DIGIT)),
    "w": character_class(_WORD),
    "W": character_class(complement(_WORD)),
    "s": character_class(_SPACE),
    "S": character_class(complement(_SPACE)),
}
"""The content of a character class for each escape."""
DOT = r"[^\x{a}\x{d}\x{2028}\x{2029}]"
"""`.`: any character except a line terminator."""

_LONG_NAMES = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Combining_Mark": "M", "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd",
    "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So", "Separator": "Z",
    "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Control": "Cc", "cntrl": "Cc",
    "Format": "Cf",
}  # fmt: skip
_NAMED: dict[str, Ranges] = {
    "Any": ((0, _LAST),),
    "ASCII": ((0, 0x7F),),
    "ASCII_Hex_Digit": _HEX,
    "AHex": _HEX,
    "White_Space": tuple(sorted({*_SPACE, (0x85, 0x85)} - {(0xFEFF, 0xFEFF)})),
}
_ASSIGNED = (range(0x34000), range(0xE0000, 0xE0200))
"""The assigned planes of Unicode, except private ones."""


@lru_cache(maxsize=64)
def property_ranges(name: str) -> Ranges | None:
    r"""Return the characters of `\p{name}`; None for an unknown name.

    Names are those of general categories, short or long, and `Any`, `ASCII`, `ASCII_Hex_Digit`, `White_Space`.
    """
    if name in _NAMED:
        return _NAMED[name]
    short = _LONG_NAMES.get(name, name)
    if short not in _LONG_NAMES.values():
        return None
    categories = _categories()
    wanted = ("Lu", "Ll", "Lt") if short == "LC" else [one for one in categories if one.startswith(short)]
    return tuple(sorted(ranges for one in wanted for ranges in categories[one]))


@cache
def _categories() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for codes in _ASSIGNED:
        start, before = codes[0], unicodedata.category(chr(codes[0]))
        for code in codes[1:]:
            category = unicodedata.category(chr(code))
            if category != before:
                found.setdefault(before, []).append((start, code - 1))
                start, before = code, category
        found.setdefault(before, []).append((start, codes[-1]))
    return found
