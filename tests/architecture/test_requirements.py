"""Requirements of tests: what a distribution's tests need alone, the workspace has too."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def table(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name.lower() for text in requirements}


def test_what_the_tests_of_a_distribution_need_is_in_a_group_of_the_workspace() -> None:
    groups = table(ROOT)["dependency-groups"]
    here = names(groups["dev"] + groups["test"])
    paths = [*sorted(ROOT.glob("*/pyproject.toml")), *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
    for path in paths:
        here |= names(table(path.parent).get("project", {}).get("dependencies", []))
    for path in paths:
        needed = names(table(path.parent).get("dependency-groups", {}).get("test", []))
        missing = {name for name in needed - here if not name.startswith("operad")}
        assert not missing, f"{path.relative_to(ROOT)}: add {sorted(missing)} to the group test of the workspace"
