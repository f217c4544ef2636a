"""The language of code and docs: idioms that readers stumble over stay rare. Imperative docstrings are ruff's D401."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tools import rooms

ROOT = Path(__file__).parents[2]


class Idiom(NamedTuple):
    """Words to avoid, and how often they may occur in 1,000 words of text."""

    instead: str
    pattern: re.Pattern[str]
    most: float


IDIOMS = {
    "answers": Idiom(
        "returns, responds",
        re.compile(
            r"\banswers? (?:a|an|for|her|him|in|it|its|no|one|the|them|to|what|whether|with)\b"
            r"|\b(?:and|it|must|that|to|which|who) answers?\b",
            re.IGNORECASE,
        ),
        0.3,
    ),
    "nobody": Idiom(
        "no caller, any client, every user",
        re.compile(r"\b(?:nobody|somebody|everybody|anybody|whoever|whomever)\b", re.IGNORECASE),
        0.1,
    ),
    "is none": Idiom("is missing, is not a", re.compile(r"\b(?:is|are) (?:none|no)\b", re.IGNORECASE), 0.3),
    "anew": Idiom(
        "again, forever, gradually", re.compile(r"\b(?:anew|for ever|by and by)\b", re.IGNORECASE), 0.02
    ),
}


def code_texts() -> Iterator[tuple[str, str]]:
    """Yield the strings with spaces in the distributions: docstrings, messages, help texts; with their places."""
    for source in rooms.sources():
        for file in sorted(source.rglob("*.py")):
            if "template" in file.parts:
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value


def docs_texts() -> Iterator[tuple[str, str]]:
    """Yield the prose of guides, READMEs and changelogs, line by line, without code blocks and the API reference."""
    readmes = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    for file in sorted({*(ROOT / "docs").rglob("*.md"), *readmes}):
        if {"api", "node_modules", ".venv"} & set(file.relative_to(ROOT).parts):
            continue
        is_code = False
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            elif not is_code:
                yield f"{file.relative_to(ROOT)}:{number}", line


def found(idiom: Idiom, texts: list[tuple[str, str]]) -> tuple[float, list[str]]:
    """Return how often an idiom occurs in 1,000 words, and where."""
    places = [
        f"{place}: {text[hit.start() : hit.end() + 30]!r}"
        for place, text in texts
        for hit in idiom.pattern.finditer(text)
    ]
    words = sum(len(re.findall(r"\w+", text)) for _, text in texts)
    return 1_000 * len(places) / max(words, 1), places


@pytest.fixture(scope="module", params=[code_texts, docs_texts], ids=["code", "docs"])
def texts(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    return list(request.param())


@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_are_rare(name: str, texts: list[tuple[str, str]]) -> None:
    idiom = IDIOMS[name]
    rate, places = found(idiom, texts)
    assert rate <= idiom.most, "\n".join([f"{rate:.2f} in 1,000 words; write {idiom.instead}:", *places])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("answers", "A handler that answers the caller."),
        ("nobody", "Nobody waits, whoever asks."),
        ("is none", "There is no file, or it is none of ours."),
        ("anew", "It is made anew, for ever."),
    ],
)
def test_an_idiom_is_found(name: str, text: str) -> None:
    assert found(IDIOMS[name], [("here:1", text)])[1]


@pytest.mark.parametrize("text", ["It returns the answer.", "No client waits.", "The file is not one of ours."])
def test_plain_sentences_have_no_idiom(text: str) -> None:
    assert not [name for name, idiom in IDIOMS.items() if found(idiom, [("here:1", text)])[1]]
