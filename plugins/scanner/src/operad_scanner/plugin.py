"""The entry point: the source ``scanner``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operad.plugin import Source, hookimpl

if TYPE_CHECKING:
    from operad.plugin import SourceContext, SourceSession


@hookimpl
def operad_sources() -> list[Source]:
    """Return the source ``scanner``."""
    return [Source("scanner", _load, _config, "A folder of Python files.")]


def _config() -> type[Any]:
    from operad_scanner.source import ScannerConfig

    return ScannerConfig


async def _load(config: Any, context: SourceContext) -> SourceSession:
    from operad_scanner.source import load

    return await load(config, context)
