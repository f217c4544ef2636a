"""The scanner that reads an ECMA-262 pattern, translates it, and finds an engine that runs it in linear time.

See `operad_schema.patterns` for the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from operad_schema.characters import CLASSES, DOT, character_class, complement, property_ranges
from operad_schema.limits import DEFAULT, Limits
from operad_schema.patterns import Pattern

RE2_MEMORY = 1024 * 1024
"""The memory in bytes that RE2 may use for a pattern; it rejects patterns that need more."""
RE2_REPEAT = 1_000
"""The highest count of a repeat that RE2 supports."""
MANY_STEPS = 200
"""The maximum number of steps per character of a pattern that Python's `re` runs."""


class UnsafePatternError(ValueError):
    """Raised if a pattern cannot be run safely. The message states the reason."""


def translate(pattern: str, limits: Limits = DEFAULT, *, unchecked: bool = False) -> Pattern:
    """Translate an ECMA-262 pattern (with the flag `u`) into one that runs in time linear in the text.

    With `unchecked`, Python's `re` runs a pattern for which this is not possible, on text of at most
    `max_pattern_string` characters. Raises `UnsafePatternError` for a pattern that is invalid or cannot be run.
    """
    if len(pattern) > limits.max_pattern_length:
        most = limits.max_pattern_length
        raise UnsafePatternError(f"expected at most {most} characters (max_pattern_length), got {len(pattern)}")
    scanner = _Scanner(pattern)
    body = scanner.whole()
    if weight := scanner.weight:
        return Pattern(pattern, _python(body), weight)
    try:
        if scanner.reason:
            raise UnsafePatternError(scanner.reason)
        return _of_re2(pattern)
    except UnsafePatternError:
        if not unchecked:
            raise
        return Pattern(pattern, _python(body), MANY_STEPS, longest=limits.max_pattern_string)


def _python(body: str) -> Callable[[str], Any]:
    """Return the search of Python's `re` for a translated pattern."""
    body = re.sub(r"\\x\{(\w+)\}", lambda found: f"\\U{int(found[1], 16):08x}", body)
    # Before 3.14, Python's \B does not match the empty text.
    body = body.replace(r"\z", r"\Z").replace(r"\B", r"(?!\b)")
    try:
        return re.compile(body, re.ASCII).search
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsafePatternError(str(error)) from None


def _of_re2(pattern: str) -> Pattern:
    compile_ = _re2()
    if compile_ is None:
        raise UnsafePatternError("it needs google-re2: pip install 'operad-schema[patterns]'")
    scanner = _Scanner(pattern, splits=True)
    body = scanner.whole()
    if r"\B" in body:
        # A search may begin within a character's bytes, where \B would match. So skip whole characters only.
        body = rf"\A(?s:.)*?(?:{body})"
    try:
        made = compile_(body)
    except Exception as error:  # noqa: BLE001  # its own class of errors, imported with it
        text = error.args[0] if error.args else ""
        raise UnsafePatternError(text.decode() if isinstance(text, bytes) else str(error)) from None
    return Pattern(pattern, made.search, made.programsize, of_bytes=True)


@cache
def _re2() -> Callable[[str], Any] | None:
    """Return the compiler of RE2; None if google-re2 is not installed."""
    try:
        import re2  # type: ignore[import-not-found, import-untyped, unused-ignore]  # an extra, without types

        options = re2.Options()
    except (ImportError, AttributeError):  # other distributions have a module with this name
        return None
    options.max_mem = RE2_MEMORY
    options.never_capture = True
    options.log_errors = False
    return lambda body: re2.compile(body, options)


_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_HEX = {"x": re.compile(r"[0-9A-Fa-f]{2}"), "u": re.compile(r"[0-9A-Fa-f]{4}|\{0*[0-9A-Fa-f]{1,6}\}")}
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_PROPERTY = re.compile(r"\{(?:(?:General_Category|gc)=)?([A-Za-z_]+)\}")
_REPEAT = re.compile(r"\{(\d{1,5})(?:(,)(\d{1,5})?)?\}")
_GROUP = re.compile(r"\?(?:<([A-Za-z_]\w*)>|:|<?[=!])", re.ASCII)
_REFERENCE = re.compile(r"([1-9]\d?)|k<([A-Za-z_]\w*)>", re.ASCII)
_CLASS_LETTERS = ("d", "D", "w", "W", "s", "S", "p", "P")


class _Scanner:
    """One pass over a pattern: translation, and the figures that bound its work in Python's `re`.

    `choices` is the number of ways in which groups and options can match, `length` the number of characters in
    fixed parts, and `varying` the number of variable parts: the start of a match, and the repeats. `reason` states
    why RE2 cannot run the pattern. With `splits`, a repeat that is too high for RE2 is split into several.
    """

    def __init__(self, text: str, *, splits: bool = False) -> None:
        self.text = text
        self.splits = splits
        self.captures = re.search(r"\\[1-9k]", text) is not None
        self.at = 0
        self.choices = 1
        self.length = 0
        self.varying = 0
        self.anchored = True
        self.reason = ""

    def whole(self) -> str:
        body = self.alternatives(0)
        if self.at < len(self.text):
            raise UnsafePatternError(f"unbalanced ')' at character {self.at + 1}")
        return body

    @property
    def weight(self) -> int:
        """The steps per character that the pattern takes in `re` in the worst case; 0 if there are too many."""
        varying = self.varying + (not self.anchored)
        steps = self.choices * (self.length + 1 if varying else 1)
        return 0 if self.reason or varying > 1 or steps > MANY_STEPS else steps

    def alternatives(self, depth: int) -> str:
        if depth > 20:
            raise UnsafePatternError("expected groups nested at most 20 deep, got more")
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
            out.append(self.term(depth))
        return "".join(out)

    def term(self, depth: int) -> str:
        choices, length, varying = self.choices, self.length, self.varying
        atom = self.atom(depth)
        low, high = self.repeat()
        if (low, high) == (1, 1):
            return atom
        if high == 1:
            self.choices *= 2
        elif self.choices > choices or self.varying > varying:
            self.varying += 2  # it may vary at each repetition
        elif low != high:
            self.varying += 1
        else:
            self.length = length + low * (self.length - length)
        lazy = "?" if self.peek() == "?" else ""
        self.at += len(lazy)
        return self.repeated(atom, low, high, lazy)

    def repeated(self, atom: str, low: int, high: int | None, lazy: str) -> str:
        out = ""
        while self.splits and max(low, high or 0) > RE2_REPEAT:
            least = min(low, RE2_REPEAT)
            most = least if high is None else min(high, RE2_REPEAT)
            out += f"{atom}{{{least},{most}}}"
            low, high = low - least, None if high is None else high - most
        return f"{out}{atom}{{{low},{'' if high is None else high}}}{lazy}"

    def repeat(self) -> tuple[int, int | None]:
        """Return (lowest, highest) of the quantifier at the cursor; (1, 1) if missing. None means no highest."""
        char = self.peek()
        if char in ("*", "+", "?"):
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char == "{" and (found := _REPEAT.match(self.text, self.at)) is not None:
            self.at = found.end()
            low = int(found[1])
            high = low if found[2] is None else None if found[3] is None else int(found[3])
            if high is not None and high < low:
                raise UnsafePatternError(f"numbers out of order in the repeat {found[0]}: {low} is above {high}")
            return low, high
        return 1, 1

    def atom(self, depth: int) -> str:
        char = self.text[self.at]
        self.at += 1
        if char == "(":
            return self.group(depth)
        if char == "^":
            return r"\A"
        if char == "$":
            return r"\z"
        if char in "*+?":
            raise UnsafePatternError(f"the quantifier {char!r} at character {self.at} has nothing to repeat")
        self.length += 1
        if char == "[":
            return self.char_class()
        if char == "\\":
            return self.escape()
        return DOT if char == "." else _literal(ord(char))

    def group(self, depth: int) -> str:
        opening = "(" if self.captures else "(?:"
        if self.peek() == "?":
            found = _GROUP.match(self.text, self.at)
            if found is None:
                text = self.text[self.at - 1 : self.at + 9]
                raise UnsafePatternError(f"expected '(?:' or a named group without flags, got {text!r}")
            self.at = found.end()
            if found[1]:
                opening = f"(?P<{found[1]}>" if self.captures else "(?:"
            else:
                opening = f"({found[0]}"
                self.reason = self.reason or ("" if found[0] == "?:" else "look-around, which RE2 cannot run")
        body = self.alternatives(depth + 1)
        if self.peek() != ")":
            raise UnsafePatternError("unbalanced '(': expected ')' before the end")
        self.at += 1
        return f"{opening}{body})"

    def escape(self) -> str:
        char = self.peek()
        if char in _CLASS_LETTERS:
            return f"[{self.class_letter()}]"
        if (found := _REFERENCE.match(self.text, self.at)) is not None:
            self.at = found.end()
            self.reason = self.reason or "a back-reference, which RE2 cannot run"
            return f"(?P={found[2]})" if found[2] else f"(?:\\{found[1]})"
        self.at += 1
        if char in ("b", "B"):
            return f"\\{char}"
        return self.character(char)

    def class_letter(self) -> str:
        r"""Return an escape such as `\d` or `\P{L}` at the cursor as the content of a class."""
        char = self.peek()
        self.at += 1
        if char in CLASSES:
            return CLASSES[char]
        name = _PROPERTY.match(self.text, self.at)
        ranges = None if name is None else property_ranges(name[1])
        if name is None or ranges is None:
            got = f"\\{char}{self.text[self.at : self.at + 20]}"
            raise UnsafePatternError(f"expected a category of Unicode such as \\p{{L}}, got {got}")
        self.at = name.end()
        return character_class(ranges if char == "p" else complement(ranges))

    def character(self, char: str) -> str:
        """Return the character of an escape in the syntax of RE2, for use inside or outside a class."""
        if char == "":
            raise UnsafePatternError("it ends in a backslash; expected a character after the backslash")
        if char in _CONTROL:
            return _literal(_CONTROL[char])
        if char in _HEX:
            return self.code_point(char)
        if char == "c" and self.peek().isascii() and self.peek().isalpha():
            self.at += 1
            return _literal(ord(self.text[self.at - 1]) % 32)
        if char.isalnum():
            raise UnsafePatternError(f"expected an escape of ECMA-262, got \\{char}")
        return _literal(ord(char))

    def code_point(self, char: str) -> str:
        digits = _HEX[char].match(self.text, self.at)
        if digits is None:
            got = repr(self.text[self.at : self.at + 8])
            raise UnsafePatternError(f"expected hexadecimal digits after \\{char}, got {got}")
        self.at = digits.end()
        code = int(digits[0].strip("{}"), 16)
        if 0xD800 <= code < 0xDC00 and (low := _LOW_SURROGATE.match(self.text, self.at)) is not None:
            self.at = low.end()
            code = 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00
        if code > 0x10FFFF:
            raise UnsafePatternError(f"expected a code point of at most 0x10ffff, got {code:#x}")
        return _literal(code)

    def char_class(self) -> str:
        negated = self.peek() == "^"
        self.at += negated
        out: list[str] = []
        first = True  # whether no single character precedes, so that a hyphen here cannot be part of a range
        while self.peek() not in ("]", ""):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                first = self.peek() in _CLASS_LETTERS
                out.append(self.class_escape())
            elif char == "-" and not first and self.peek() not in ("]", ""):
                first = True
                is_class = self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in _CLASS_LETTERS
                out.append(_literal(ord(char)) if is_class else "-")
            else:
                first = False
                out.append(_literal(ord(char)))
        if self.peek() == "":
            raise UnsafePatternError("unbalanced '[': expected ']' before the end")
        self.at += 1
        if not out:
            return r"(?s:.)" if negated else r"[^\x{0}-\x{10ffff}]"
        return f"[{'^' if negated else ''}{''.join(out)}]"

    def class_escape(self) -> str:
        if self.peek() in _CLASS_LETTERS:
            return self.class_letter()
        char = self.peek()
        self.at += 1
        return _literal(8) if char == "b" else self.character(char)

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""


def _literal(code: int) -> str:
    """Return a character in the syntax of RE2, for use inside or outside a class."""
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\x{{{code:x}}}"
