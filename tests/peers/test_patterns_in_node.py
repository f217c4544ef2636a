"""Patterns mean here what they mean in Node: the same patterns and texts, in both engines.

Made at random from the constructs of ECMA-262, always the same ones. `OPERAD_LONG=1` compares fifty times as many.
"""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from operad_schema.translating import UnsafePatternError, translate

NODE = """
const pairs = JSON.parse(require("fs").readFileSync(0, "utf8"));
const test = ([pattern, texts]) => {
  try { const made = new RegExp(pattern, "u"); return texts.map(text => made.test(text)); } catch { return null; }
};
console.log(JSON.stringify(pairs.map(test)));
"""
ATOMS = [
    *"abxé😀-_ 1", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B", "^", "$", "[a-c]", "[^a]", "[^]", "[]",
    r"[\w-]", r"[\s\d]", r"\p{L}", r"\P{Lu}", r"[^\p{N}x]", r"\u{1F600}", r"\ud83d\ude00", r"\x61", r"\t", r"\cJ",
    r"\.", r"\/", r"[\b]", r"[\]\-]", "[é-😀]", r"\u00e9", r"\0",
]  # fmt: skip
REPEATS = ["", "", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,3}?", "{0}", "{0,1001}"]
CHARACTERS = [
    *"aabbxx11é😀-_. \t\n\r]",
    "\u2028",
    "\ufeff",
    "\x1c",
    "\u0663",
    "\u0130",
    "\0",
    "\x08",
    "\ud83d",
    "Z",
]


def _pattern(draw: random.Random, depth: int = 0) -> str:
    terms = []
    for _ in range(draw.randint(0 if depth else 1, 4)):
        if depth < 3 and draw.random() < 0.25:
            opening = draw.choice(["(", "(?:", "(?<n>" if depth == 0 and not terms else "("])
            atom = f"{opening}{_pattern(draw, depth + 1)})"
        else:
            atom = draw.choice(ATOMS)
        terms.append(atom + ("" if atom in ("^", "$", r"\b", r"\B") else draw.choice(REPEATS)))
    text = "".join(terms)
    text = f"{text}|{_pattern(draw, depth + 1)}" if depth < 3 and draw.random() < 0.2 else text
    return f"^{text}$" if depth == 0 and draw.random() < 0.4 else text


def _pairs(count: int) -> Iterator[tuple[str, list[str]]]:
    draw = random.Random(20_26)
    for _ in range(count):
        pattern = _pattern(draw)
        # Node finds a \\B between the halves of a character beyond U+FFFF, where with the flag `u` there is nothing.
        characters = [one for one in CHARACTERS if one < "\U00010000" or "\\B" not in pattern]
        yield pattern, ["", *("".join(draw.choices(characters, k=draw.randint(1, 6))) for _ in range(20))]


def _here(pattern: str) -> Callable[[str], bool] | None:
    try:
        return translate(pattern).matches
    except UnsafePatternError:
        return None


def test_patterns_match_what_they_match_in_node() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    pairs = list(_pairs(100_000 if os.environ.get("OPERAD_LONG") else 2_000))
    text = json.dumps(pairs)  # with its surrogates escaped, as Node reads them
    done = subprocess.run(["node", "-e", NODE], input=text, capture_output=True, text=True, check=True)
    compared, wrong = 0, []
    for (pattern, texts), there in zip(pairs, json.loads(done.stdout), strict=True):
        matches = _here(pattern)
        if there is None or matches is None:
            continue
        compared += len(texts)
        wrong += [(pattern, one, told) for one, told in zip(texts, there, strict=True) if matches(one) != told]
    assert wrong == []
    assert compared > 10 * len(pairs), "most patterns are valid in Node, and run here"


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y"])
def test_a_pattern_that_backtracks_in_other_engines_ends_here(pattern: str) -> None:
    assert translate(pattern).matches("a" * 100_000 + "!") is False
