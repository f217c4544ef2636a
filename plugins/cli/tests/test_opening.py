"""Which sources a command opens."""

from __future__ import annotations

from pathlib import Path

from operad.config.reading import load_configuration
from operad_cli.running.opening import groups_for


def test_sources_for_one_operation_are_those_of_its_namespace_then_folders_then_the_rest(tmp_path: Path) -> None:
    text = """
[sources.shop]
type = "openapi"
[sources.other]
type = "mcp"
namespace = "math"
[sources.local]
type = "scanner"
"""
    (tmp_path / "operad.toml").write_text(text)
    configuration = load_configuration(tmp_path)
    assert list(groups_for(configuration, "shop.get")) == [("shop",), ("local",), ("other",)]
    assert list(groups_for(configuration, "math.add")) == [("other",), ("local",), ("shop",)]
    assert list(groups_for(configuration, "none.x")) == [("local",), ("shop", "other")]
