"""The entry point: the source ``code`` and the command ``operad run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operad.plugin import Source, hookimpl

if TYPE_CHECKING:
    from operad.plugin import SourceContext, SourceSession


@hookimpl
def operad_sources() -> list[Source]:
    """Return the source ``code``."""
    return [Source("code", _load, _config, "Programs over operations: search, describe and run, or a folder.")]


@hookimpl
def operad_commands(cli: Any) -> None:
    """Add the command ``operad run``."""
    from operad_code.command import run_program

    cli.add_command(run_program)


def _config() -> type[Any]:
    from operad_code.config import CodeConfig

    return CodeConfig


async def _load(config: Any, context: SourceContext) -> SourceSession:
    from operad_code.source import load  # the sandbox is imported when a program is checked or run

    return await load(config, context)
