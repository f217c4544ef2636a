"""Completion of ids and fields, before anything else is imported: what `operad call sho<TAB>` runs.

Words are read as the shells' scripts give them (those of click, see `operad completion`): ``COMP_WORDS`` has
all of them and ``COMP_CWORD`` the number of the one at hand; fish gives that one itself. What is no id and no
field is left to click.
"""

from __future__ import annotations

import os

from operad_cli import cache
from operad_cli.finding import find

TAKERS = ("call", "describe", "subscribe", "trace")
"""The commands that take an id, and all but ``describe`` fields after it."""
_VALUED = frozenset({"-c", "--config", "--profile", "--timeout", "-i", "--input", "--select", "-n", "--limit"})


def answer() -> str | None:
    """What the shell is told; ``None`` where click has to say it."""
    shell = os.environ.get("_OPERAD_COMPLETE", "").removesuffix("_complete")
    if shell not in ("bash", "zsh", "fish"):
        return None
    found = candidates(*_words(shell))
    if found is None:
        return None
    if shell == "zsh":
        return "".join(f"plain\n{name}\n_\n" for name in found)
    return "".join(f"plain,{name}\n" for name in found)


def _words(shell: str) -> tuple[list[str], str]:
    """The words before the one that is completed, and that one."""
    import shlex  # of the standard library, and small

    text = os.environ.get("COMP_WORDS", "")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = []
    try:
        while (word := lexer.get_token()) is not None:
            words.append(word)
    except ValueError:  # a quote that is still open
        words.append(lexer.token)
    position = os.environ.get("COMP_CWORD", "")
    if shell == "fish":
        incomplete = position
        if incomplete and words and words[-1] == incomplete:
            words.pop()
        return words[1:], incomplete
    number = int(position) if position.isdigit() else len(words)
    return words[1:number], words[number] if number < len(words) else ""


def candidates(before: list[str], incomplete: str) -> list[str] | None:
    """The ids or fields that fit; ``None`` for what is neither."""
    if incomplete.startswith("-"):
        return None
    config, plain = None, []
    words = iter(before)
    for word in words:
        if word in _VALUED:
            value = next(words, None)
            if value is None:
                return None  # the value of an option is being written
            config = value if word in ("-c", "--config") else config
        elif word.startswith("--config="):
            config = word.partition("=")[2]
        elif not word.startswith("-"):
            plain.append(word)
    if not plain or plain[0] not in TAKERS or (plain[0] == "describe" and len(plain) > 1):
        return None
    path = find(config)
    known = {} if path is None else cache.recall(path)
    if len(plain) == 1:
        return sorted(name for name in known if name.startswith(incomplete) and _is_harmless(name))
    given = {field.partition("=")[0].partition("@")[0].rstrip(":") for field in plain[2:]}
    return [
        f"{field}="
        for field in known.get(plain[1], ())
        if field not in given and f"{field}=".startswith(incomplete) and _is_harmless(field)
    ]


def _is_harmless(name: str) -> bool:
    """Whether a name, which others chose, may stand on a command line: a shell takes it for nothing else."""
    return name.isprintable() and not set(name) & set(" `$;&|<>()\"'\\!")
