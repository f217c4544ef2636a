"""The scanner that reads a pattern of ECMA-262, translates it to Python, and judges whether it may be run.

See `operad_schema.patterns` for why.
"""

from __future__ import annotations

import re

from operad_schema.characters import CLASSES, DOT, character_class, complement, property_ranges
from operad_schema.limits import DEFAULT, Limits
from operad_schema.patterns import FREE, Pattern


class UnsafePatternError(ValueError):
    """The pattern is not run; the message has the reason."""


def translate(pattern: str, limits: Limits = DEFAULT) -> Pattern:
    """Translate an ECMA-262 pattern (with the flag `u`) into one that may be run within `limits`.

    Raises `UnsafePatternError` for a pattern that could backtrack without bound (nested or several unbounded
    repeats, alternation under a repeat, look-around, back-references) or is not valid.
    """
    if len(pattern) > limits.max_pattern_length:
        raise UnsafePatternError(f"longer than {limits.max_pattern_length} characters")
    scanner = _Scanner(pattern, limits.max_pattern_string)
    body = scanner.alternatives(0)
    if scanner.at < len(pattern):
        raise UnsafePatternError("unbalanced ')'")
    if scanner.unbounded > 1:
        raise UnsafePatternError("more than one unbounded repeat")
    made = Pattern(
        pattern,
        body,
        limits.max_pattern_string,
        factors=scanner.factors,
        repeats=scanner.unbounded > int(scanner.ends_unbounded),
        anchored=scanner.anchored,
        start=scanner.start,
    )
    if made.cost("xxx") > FREE:
        raise UnsafePatternError(f"may need more than {FREE} steps for three characters")
    try:
        made.compiled  # noqa: B018  # kept for the first match
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsafePatternError(str(error)) from None
    return made


_CONTROL = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "v": r"\v", "0": r"\x00"}
_HEX = {"x": re.compile(r"[0-9A-Fa-f]{2}"), "u": re.compile(r"[0-9A-Fa-f]{4}|\{0*[0-9A-Fa-f]{1,6}\}")}
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_PROPERTY = re.compile(r"\{(?:(?:General_Category|gc)=)?([A-Za-z_]+)\}")
_REPEAT = re.compile(r"\{(\d{1,5})(?:(,)(\d{1,5})?)?\}")
_CLASS_LETTERS = ("d", "D", "w", "W", "s", "S", "p", "P")


class _Scanner:
    """One pass over a pattern: translation, and the figures that bound its work.

    `factors` are the choices that a match can make, each with whether the string's length bounds it too;
    `unbounded` counts the unbounded repeats. `start` is the character that every match begins with, if known.
    """

    def __init__(self, text: str, longest: int) -> None:
        self.text = text
        self.longest = longest
        self.at = 0
        self.unbounded = 0
        self.ends_unbounded = False
        self.factors: list[tuple[int, bool]] = []
        self.anchored = True
        self.start = ""

    def alternatives(self, depth: int) -> str:
        if depth > 20:
            raise UnsafePatternError("groups nested more than 20 deep")
        branches = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence(depth))
        if len(branches) > 1:
            self.factors.append((len(branches), False))
            if depth == 0:
                self.start, self.ends_unbounded = "", False
        return "|".join(branches)

    def sequence(self, depth: int) -> str:
        out: list[str] = []
        if depth == 0 and self.peek() != "^":
            self.anchored = False
            first = self.text[self.at : self.at + 1]
            self.start = first if first and first not in "\\[(.^$*+?{|)" else ""
        while self.at < len(self.text) and self.peek() not in ("|", ")"):
            out.append(self.term(depth, first=not out))
        return "".join(out)

    def term(self, depth: int, *, first: bool) -> str:
        unbounded, factors = self.unbounded, len(self.factors)
        atom = self.atom(depth)
        low, high = self.repeat()
        # The last term never backtracks: nothing after it can fail.
        self.ends_unbounded = depth == 0 and high is None
        if (low, high) == (1, 1):
            return atom
        inner_varies = self.unbounded > unbounded or len(self.factors) > factors
        if inner_varies and high != 1:
            raise UnsafePatternError("a repeat or alternation under a repeat")
        if first and depth == 0 and low == 0:
            self.start = ""
        if high is None:
            self.unbounded += 1
        elif high > low:
            self.factors.append((high - low + 1, True))
        lazy = "?" if self.peek() == "?" else ""
        self.at += len(lazy)
        return f"{atom}{{{low},{'' if high is None else high}}}{lazy}"

    def repeat(self) -> tuple[int, int | None]:
        """Return the quantifier at the cursor as (lowest, highest or None); (1, 1) if there is none."""
        char = self.peek()
        if char in ("*", "+", "?"):
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char == "{" and (found := _REPEAT.match(self.text, self.at)) is not None:
            self.at = found.end()
            low = int(found[1])
            high = low if found[2] is None else None if found[3] is None else int(found[3])
            if max(low, high or 0) > self.longest or (high is not None and high < low):
                raise UnsafePatternError(f"repeat out of the range 0 to {self.longest}")
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
        if char in "*+?":
            raise UnsafePatternError("a quantifier with nothing to repeat")
        return {"$": r"\Z", "^": "^", ".": DOT}.get(char) or re.escape(char)

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
        if char in _CLASS_LETTERS:
            return f"[{self.class_letter()}]"
        self.at += 1
        if char in ("b", "B"):
            return rf"(?a:\{char})"
        return self.character(char)

    def class_letter(self) -> str:
        r"""Return `\d`, `\P{L}` and the like at the cursor as the content of a Python class."""
        char = self.peek()
        self.at += 1
        if char in CLASSES:
            return CLASSES[char]
        name = _PROPERTY.match(self.text, self.at)
        ranges = None if name is None else property_ranges(name[1])
        if name is None or ranges is None:
            raise UnsafePatternError(f"\\{char}{self.text[self.at : self.at + 20]} is not supported")
        self.at = name.end()
        return character_class(ranges if char == "p" else complement(ranges))

    def character(self, char: str) -> str:
        """Return the character of an escape, inside a class or outside."""
        if char == "":
            raise UnsafePatternError("ends in a backslash")
        if char in _CONTROL:
            return _CONTROL[char]
        if char in _HEX:
            return self.code_point(char)
        if char == "c" and self.peek().isascii() and self.peek().isalpha():
            self.at += 1
            return f"\\x{ord(self.text[self.at - 1]) % 32:02x}"
        if char.isdigit():
            raise UnsafePatternError("back-reference")
        if char.isalpha():
            raise UnsafePatternError(f"\\{char} is not supported")
        return re.escape(char)

    def code_point(self, char: str) -> str:
        digits = _HEX[char].match(self.text, self.at)
        if digits is None:
            raise UnsafePatternError(f"\\{char} without its hexadecimal digits")
        self.at = digits.end()
        code = int(digits[0].strip("{}"), 16)
        if 0xD800 <= code < 0xDC00 and (low := _LOW_SURROGATE.match(self.text, self.at)) is not None:
            self.at = low.end()
            code = 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00
        if code > 0x10FFFF:
            raise UnsafePatternError(f"no character has the number {code:#x}")
        return f"\\U{code:08x}"

    def char_class(self) -> str:
        negated = self.peek() == "^"
        self.at += negated
        out: list[str] = []
        first = True  # whether a hyphen here could not end a range: nothing, or no single character, before it
        while self.peek() not in ("]", ""):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                first = self.peek() in _CLASS_LETTERS
                out.append(self.class_escape())
            elif char == "-" and not first and self.peek() not in ("]", ""):
                first = True
                is_class = self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in _CLASS_LETTERS
                out.append(r"\-" if is_class else "-")
            else:
                first = False
                out.append(re.escape(char))
        if self.peek() == "":
            raise UnsafePatternError("unbalanced '['")
        self.at += 1
        if not out:
            return "(?s:.)" if negated else "(?!)"
        return f"[{'^' if negated else ''}{''.join(out)}]"

    def class_escape(self) -> str:
        if self.peek() in _CLASS_LETTERS:
            return self.class_letter()
        char = self.peek()
        self.at += 1
        return r"\x08" if char == "b" else self.character(char)

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""
