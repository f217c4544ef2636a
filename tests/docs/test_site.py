"""The site: every page is in its navigation, its picture is up to date, and it builds without a warning."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import pictures, references

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("*.md")}
    assert pages - named == set()
    assert {name for name in named if "/" not in name} - pages == set()


def test_the_pictures_are_up_to_date() -> None:
    for name, picture in pictures.pictures().items():
        written = (DOCS / "images" / name).read_text(encoding="utf-8")
        assert written == picture, f"{name}: run tools/pictures.py"


@pytest.mark.slow
def test_the_site_builds_strictly_and_has_an_api_reference_and_a_list_for_models(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="the group docs is not installed: uv sync --group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    env = {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0, done.stderr

    def read(name: str) -> str:
        return (tmp_path / name).read_text(encoding="utf-8")

    for face in references.FACES:
        page = read(f"api/{face}.html")
        names = {name.lower() for name in importlib.import_module(face).__all__}
        assert names - set(re.findall(r'<h2 id="([^"]+)"', page)) == set()
    assert "Call an operation and return its envelope; for a subscription" in read("api/operad.html")
    assert "to_mcp</span><span" in read("api/operad_mcp.html")
    link = 'href="api/operad.plugin.html#callmap"><code>operad.plugin.CallMap</code>'
    assert link in read("hooks.html")
    assert "Usage: operad serve" in read("cli.html")
    reference = read("configuration-reference.html")
    assert all(f'<h2 id="{table}">' in reference for table in ("calls", "hub", "registry", "rules", "serve"))
    listed = re.findall(r"^- \[.+\]\((.+?)\)", read("llms.txt"), re.MULTILINE)
    assert len(listed) > 40
    assert [page for page in listed if not (tmp_path / page).is_file()] == []
    outside = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="https?://(?!127\.)')
    assert [page.name for page in tmp_path.rglob("*.html") if outside.search(read(str(page)))] == []
