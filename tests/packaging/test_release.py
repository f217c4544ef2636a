"""What keeps a release from being published: known vulnerabilities, and dependencies that were not audited."""

from __future__ import annotations

from typing import Any

import pytest

from tools import release

CLEAN: dict[str, Any] = {"name": "attrs", "version": "26.1.0", "vulns": []}
KNOWN = {"id": "PYSEC-2024-24", "fix_versions": ["3.9.2"], "aliases": [], "description": "…"}
FOUND = {"name": "aiohttp", "version": "3.9.0", "vulns": [KNOWN]}
UNKNOWN = {"name": "click", "skip_reason": "Dependency not found on PyPI and could not be audited: click (8.5.1)"}


def test_a_known_vulnerability_is_a_problem_whatever_is_allowed() -> None:
    expected = ["aiohttp 3.9.0: PYSEC-2024-24, fixed in 3.9.2"]
    assert release.problems({"dependencies": [CLEAN, FOUND]}, allow_unaudited=False) == expected
    assert release.problems({"dependencies": [CLEAN, FOUND]}, allow_unaudited=True) == expected


def test_a_dependency_that_was_not_audited_is_a_problem_unless_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    (problem,) = release.problems({"dependencies": [CLEAN, UNKNOWN]}, allow_unaudited=False)
    assert problem.startswith("not audited: 1 of 2 dependencies")
    assert release.problems({"dependencies": [CLEAN, UNKNOWN]}, allow_unaudited=True) == []
    assert "audited 1 of 2 dependencies" in capsys.readouterr().out
