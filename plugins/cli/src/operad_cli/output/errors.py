"""The output of errors: paragraphs on standard error, or JSON on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from operad import CallError, OperationRegistry
from operad_cli.output.text import paragraph, print_json, print_text, printable, styled


def print_error(error: BaseException, *, as_json: bool) -> None:
    """Print an error, or each error of a group: a paragraph on standard error, or JSON on standard output."""
    errors: Sequence[BaseException] = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
    for item in errors:
        if not as_json:
            tell_error(" ".join(str(item).split()) or type(item).__name__)
        elif isinstance(item, CallError):
            print_json({"error": item.to_wire()})
        else:
            print_json({"error": {"code": type(item).__name__, "message": str(item)}})


def tell_error(text: str) -> None:
    """Print a message on standard error, as a paragraph that begins with ``error:``."""
    print_text(labelled("error", text), sys.stderr)


def labelled(level: str, text: str) -> str:
    """Return ``level: text`` as a paragraph for standard error, with the level in its colour."""
    wrapped = paragraph(f"{level}: {printable(text)}", sys.stderr)
    style = "warning" if level == "warning" else "error"
    return styled(f"{level}:", style, sys.stderr) + wrapped[len(level) + 1 :]


def report_failures(registry: OperationRegistry) -> int:
    """Print the errors of sources that could not be loaded. Return the exit code: 1 if a source failed, else 0."""
    for failure in registry.failures:
        tell_error(f"source {_header(registry, failure.name)} is not loaded: {with_place(registry, failure)}")
    return 1 if registry.failures else 0


def with_place(registry: OperationRegistry, failure: Any) -> str:
    """Return the error of a source that is not loaded, with the file and line of the source's table."""
    text = " ".join(str(failure.error).split())
    if registry.configuration is None or " @ " in text:
        return text
    where = registry.configuration.where("sources", failure.name)
    return text if text.startswith(f"{where.partition(':')[0]}:") else f"{text} @ {where}"


def _header(registry: OperationRegistry, source: str) -> str:
    """Return the header of a source's table as written: ``[sources.shop]``."""
    configuration = registry.configuration
    place = f"sources.{source}" if configuration is None else configuration.where("sources", source)
    return f"[{place.rpartition(': ')[2]}]"
