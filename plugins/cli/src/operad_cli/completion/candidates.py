"""The ids and fields that complete a word. They come from the cache, so no source is started."""

from __future__ import annotations

import click

from operad_cli.completion import cache
from operad_cli.options import find_configuration


def complete_id(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the cached ids that begin with ``incomplete``."""
    return [name for name in sorted(_known(context)) if name.startswith(incomplete) and _is_harmless(name)]


def complete_field(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the input fields that are not given yet, as ``key=``; after a ``key=``, its cached values."""
    words = list(context.params.get("fields") or ())
    fields = _known(context).get(context.params.get("operation_id") or "", {})
    # bash makes three words of key=value, and click leaves out the second one if it is the last.
    before = [word for word in words if word != "="][-1:]
    if before and before[0] in fields:
        return [value for value in fields[before[0]] if value.startswith(incomplete) and _is_harmless(value)]
    key, separator, begin = incomplete.partition("=")
    if separator:
        return [
            f"{key}={value}" for value in fields.get(key, []) if value.startswith(begin) and _is_harmless(value)
        ]
    given = {field.partition("=")[0].partition("@")[0].rstrip(":") for field in words}
    return [
        f"{field}="
        for field in fields
        if field not in given and f"{field}=".startswith(incomplete) and _is_harmless(field)
    ]


def _known(context: click.Context) -> dict[str, dict[str, list[str]]]:
    """Return the cached fields and values of the command's configuration, by operation id."""
    path = find_configuration(context.params.get("config") or context.find_root().params.get("config"))
    return {} if path is None else cache.recall(str(path))


def _is_harmless(name: str) -> bool:
    """Return True if a shell reads this name, which a source chose, as one plain word."""
    return name.isprintable() and not set(name) & set(" `$;&|<>()\"'\\!")
