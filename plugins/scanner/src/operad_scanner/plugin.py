"""The entry point: what this distribution contributes."""

from __future__ import annotations

from operad.plugin import Source, hookimpl


@hookimpl
def operad_sources() -> list[Source]:
    """The source ``scanner``."""
    from operad_scanner.source import ScannerConfig, load

    return [Source("scanner", load, ScannerConfig, "A folder of Python files.")]
