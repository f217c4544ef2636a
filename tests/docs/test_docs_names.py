"""Links between the pages lead somewhere, the lists are complete, and the names in the tables exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from operad import ErrorCode, hookspecs

ROOT = Path(__file__).parents[2]
MODULES = """
operad operad.plugin operad_auth operad_calls operad_mcp operad_openapi operad_rules operad_scanner operad_schema
operad_search operad_serve operad_testing
"""
DECISIONS = ROOT / "docs" / "decisions"
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("core/*.md"),
    *ROOT.glob("schema/*.md"),
    *ROOT.glob("plugins/*/*.md"),
    *ROOT.glob("examples/*/*.md"),
    *ROOT.glob("benchmarks/*.md"),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]+`", "``", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    broken = [target for target in targets if ":" not in target and not (page.parent / target).exists()]
    assert broken == []


def test_every_decision_is_listed() -> None:
    index = (DECISIONS / "README.md").read_text()
    assert [page.name for page in DECISIONS.glob("0*.md") if f"({page.name})" not in index] == []


def test_the_names_of_the_migration_guide_exist() -> None:
    rows = [line for line in (ROOT / "docs" / "migration.md").read_text().splitlines() if line.startswith("| ")]
    here = " ".join(row.split(" | ")[1] for row in rows)
    names = set(re.findall(r"`([A-Z]\w+|\w+_\w+)\b(?=[`(.])", here))
    modules = [importlib.import_module(name) for name in MODULES.split()]
    known = {name for module in modules for name in module.__all__} | {module.__name__ for module in modules}
    fields = {"operation_id", "status_code", "content_type", "is_error", "structured_content"}
    assert len(names) > 40
    assert names - known - fields - set(dir(hookspecs)) - set(dir(ErrorCode)) - {"None", "True"} == set()
