"""`pattern` and `patternProperties`: ECMA-262 regular expressions, run only where their work is bounded.

Python's `re` backtracks and holds the GIL: `^(a+)+$` takes seconds on 26 characters. A pattern from a
schema is therefore read by the small scanner here, which translates it to Python and refuses what can
backtrack without bound; a refused pattern is an annotation.
"""

from __future__ import annotations

import re

MAX_STRING = 4096
"""The longest string, in characters, that a pattern is run on; a longer one counts as a match."""
MAX_STEPS = 40_000_000
"""The most backtracking steps that a pattern may need on a string of `MAX_STRING` characters."""
MAX_PATTERN = 1024
"""The longest pattern, in characters."""

_DIGIT, _WORD = "0-9", "A-Za-z0-9_"
_CLASSES = {
    "d": f"[{_DIGIT}]",
    "D": f"[^{_DIGIT}]",
    "w": f"[{_WORD}]",
    "W": f"[^{_WORD}]",
    "s": r"\s",
    "S": r"\S",
}
_CONTROL = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "v": r"\v", "0": r"\x00"}
_HEX = {"x": re.compile(r"[0-9A-Fa-f]{2}"), "u": re.compile(r"[0-9A-Fa-f]{4}")}
_BOUNDS = re.compile(r"\{(\d{1,5})(?:(,)(\d{1,5})?)?\}")


class UnsafePatternError(ValueError):
    """The pattern is not run; the message says why."""


def translate(pattern: str) -> str:
    """The Python form of an ECMA-262 pattern, which also accepts every string above `MAX_STRING`.

    Raises `UnsafePatternError` for what could backtrack without bound (nested or several unbounded
    repeats, alternation under a repeat, look-around, back-references) or is no valid pattern.
    """
    if len(pattern) > MAX_PATTERN:
        raise UnsafePatternError(f"longer than {MAX_PATTERN} characters")
    scanner = _Scanner(pattern)
    body = scanner.alternatives(0)
    if scanner.at < len(pattern):
        raise UnsafePatternError("unbalanced ')'")
    starts = 1 if scanner.anchored else MAX_STRING
    if scanner.unbounded > 1:
        raise UnsafePatternError("more than one unbounded repeat")
    if scanner.choices * (MAX_STRING if scanner.unbounded else 1) * starts > MAX_STEPS:
        raise UnsafePatternError(f"may need more than {MAX_STEPS} steps")
    source = rf"(?:{body})|\A(?s:.{{{MAX_STRING + 1}}})"
    try:
        re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsafePatternError(str(error)) from None
    return source


class _Scanner:
    """One pass over a pattern: translation, and the figures that bound its work."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.unbounded = 0
        self.choices = 1
        self.anchored = True

    def alternatives(self, depth: int) -> str:
        if depth > 20:
            raise UnsafePatternError("groups nested more than 20 deep")
        branches = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence(depth))
        self.choices *= len(branches)
        return "|".join(branches)

    def sequence(self, depth: int) -> str:
        out: list[str] = []
        if depth == 0 and self.peek() != "^":
            self.anchored = False
        while self.at < len(self.text) and self.peek() not in ("|", ")"):
            unbounded, choices = self.unbounded, self.choices
            atom = self.atom(depth)
            low, high = self.repeat()
            if (low, high) != (1, 1):
                inner_varies = self.unbounded > unbounded or self.choices > choices
                if inner_varies and high != 1:
                    raise UnsafePatternError("a repeat or alternation under a repeat")
                if high is None:
                    self.unbounded += 1
                else:
                    self.choices *= high - low + 1
                atom += self.quantifier(low, high)
                if self.peek() == "?":
                    self.at += 1
                    atom += "?"
            out.append(atom)
        return "".join(out)

    @staticmethod
    def quantifier(low: int, high: int | None) -> str:
        return f"{{{low},{'' if high is None else high}}}"

    def repeat(self) -> tuple[int, int | None]:
        """The quantifier at the cursor, as (lowest, highest or None); (1, 1) is none."""
        char = self.peek()
        if char and char in "*+?":
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if found := _BOUNDS.match(self.text, self.at):
            self.at = found.end()
            low = int(found[1])
            high = low if not found[2] else int(found[3]) if found[3] else None
            if low > MAX_STRING or (high or 0) > MAX_STRING or (high is not None and high < low):
                raise UnsafePatternError(f"repeat out of the range 0 to {MAX_STRING}")
            return low, high
        return 1, 1

    def atom(self, depth: int) -> str:
        char = self.text[self.at]
        self.at += 1
        if char == "(":
            return self.group(depth)
        if char == "[":
            return self.char_class()
        if char == "\\":
            return self.escape()
        if char == "$":
            return r"\Z"
        if char in "*+?":
            raise UnsafePatternError("a quantifier with nothing to repeat")
        return char if char in "^." else re.escape(char)

    def group(self, depth: int) -> str:
        if self.peek() == "?":
            rest = self.text[self.at :]
            if rest.startswith("?:"):
                self.at += 2
            elif (named := re.match(r"\?<[A-Za-z_]\w*>", rest)) is not None:
                self.at += named.end()
            else:
                raise UnsafePatternError("look-around or inline flags")
        body = self.alternatives(depth + 1)
        if self.peek() != ")":
            raise UnsafePatternError("unbalanced '('")
        self.at += 1
        return f"(?:{body})"

    def escape(self) -> str:
        char = self.peek()
        self.at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if char in ("b", "B"):
            return f"\\{char}"
        return self.character(char)

    def character(self, char: str) -> str:
        """An escape that stands for one character, inside a class or outside."""
        if char == "":
            raise UnsafePatternError("ends in a backslash")
        if char in _CONTROL:
            return _CONTROL[char]
        if char in _HEX:
            digits = _HEX[char].match(self.text, self.at)
            if digits is None:
                raise UnsafePatternError(f"\\{char} without its hexadecimal digits")
            self.at = digits.end()
            return f"\\{char}{digits[0]}"
        if char.isdigit():
            raise UnsafePatternError("back-reference")
        if char.isalpha():
            raise UnsafePatternError(f"\\{char} is not supported")
        return re.escape(char)

    def char_class(self) -> str:
        out = ["["]
        if self.peek() == "^":
            self.at += 1
            out.append("^")
        if self.peek() == "]":
            raise UnsafePatternError("an empty character class")
        first = True  # whether a hyphen here could not end a range: nothing, or no single character, before it
        while self.peek() not in ("]", ""):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                first = self.peek() in _CLASSES
                out.append(self.class_escape())
            elif char == "-" and not first and self.peek() not in ("]", ""):
                first = True
                if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in _CLASSES:
                    out.append(r"\-")
                else:
                    out.append("-")
            else:
                first = False
                out.append(re.escape(char))
        if self.peek() == "":
            raise UnsafePatternError("unbalanced '['")
        self.at += 1
        return "".join(out) + "]"

    def class_escape(self) -> str:
        char = self.peek()
        self.at += 1
        if char == "d":
            return _DIGIT
        if char == "w":
            return _WORD
        if char in ("s", "S", "D", "W"):
            return f"\\{char}"
        return r"\x08" if char == "b" else self.character(char)

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""
