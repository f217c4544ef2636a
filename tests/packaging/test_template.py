"""The plugin template: rendered, installed into a fresh environment, its tests run there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("copier", reason="copier is not installed: pip install operad-cli[new-plugin]")
    from operad_cli.commands.new_plugin import render_plugin

    return render_plugin(
        "carrier-pigeons", tmp_path_factory.mktemp("template") / "plugin", 'They "carry" letters.'
    )


def test_a_new_plugin_installs_and_passes_its_own_tests(
    rendered: Path, make_environment: Callable[[list[Any]], Any], wheels: dict[str, Path]
) -> None:
    environment = make_environment([wheels["operad"], f"{rendered}[test]"])
    done = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=rendered)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = (one for one in environment.records() if one["name"] == "carrier-pigeons")
    assert record["name"] == "carrier-pigeons"
    assert record["contributes"] == {"sources": ["carrier-pigeons"], "envelope_kinds": ["carrier-pigeons"]}


def test_a_new_plugin_is_strictly_typed(rendered: Path, tmp_path: Path) -> None:
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "src/operad_carrier_pigeons"]
    done = subprocess.run(mypy, cwd=rendered, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def test_the_wheel_of_the_command_carries_the_template(wheels: dict[str, Path]) -> None:
    import zipfile

    names = zipfile.ZipFile(wheels["operad-cli"]).namelist()
    assert "operad_cli/template/copier.yml" in names
    assert "operad_cli/template/skeleton/src/operad_{{ module }}/plugin.py.jinja" in names
    assert "operad_cli/template/skeleton/.gitignore.jinja" in names
