"""The pictures of docs/benchmarks.md are those of the saved results, drawn by the command beside them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import results

ROOT = Path(__file__).parents[2]


def test_each_picture_of_the_page_is_drawn_from_a_saved_result(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the group benchmark is not installed")
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    drawn = results.draw(ROOT / "benchmarks" / "results", tmp_path)
    assert {path.name for path in drawn} == set(re.findall(r"images/(benchmark-[\w-]+\.svg)", page))
    for path in drawn:
        made, committed = (
            each.read_text(encoding="utf-8") for each in (path, ROOT / "docs" / "images" / path.name)
        )
        assert texts(made) == texts(committed), f"{path.name}: draw it again, as docs/benchmarks.md says"
        saved = json.loads((ROOT / "benchmarks" / "results" / f"{path.stem.partition('-')[2]}.json").read_text())
        assert saved["command"] in texts(made)
        assert saved["exit"] == 0


def texts(picture: str) -> list[str]:
    """Return the texts of a picture, which do not depend on the version of matplotlib."""
    return re.findall(r"<text [^>]*>([^<]*)</text>", picture)


def test_arguments_of_a_program_need_one_program() -> None:
    command = [sys.executable, "-m", "benchmarks", "core", "serving", "--", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "arguments after -- need the name of one benchmark" in done.stderr


def test_a_program_keeps_its_comparisons_only_if_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(results.FILE, raising=False)
    results.compared("a", "ms", {"operad": 1.0})
    monkeypatch.setenv(results.FILE, str(tmp_path / "kept"))
    results.compared("a", "ms", {"operad": 1.0, "other": 2.0})
    kept = json.loads((tmp_path / "kept").read_text(encoding="utf-8"))
    assert kept == {"title": "a", "unit": "ms", "figures": {"operad": 1.0, "other": 2.0}}
