"""`operad new-plugin`: what it refuses. That what it writes works is tested with the packaging."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from operad import ConfigError
from operad_cli.commands.new_plugin import TEMPLATE, new_plugin, render_plugin


@pytest.mark.parametrize(
    ("name", "near"), [("GraphQL", "graphql"), ("my plugin", "my-plugin"), ("a_b", "a-b"), ("1st", "st")]
)
def test_a_name_that_is_nearly_right_gets_a_suggestion(name: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f'did you mean "{near}"'):
        render_plugin(name, tmp_path / "x")


@pytest.mark.parametrize("name", ["", "Pigeons", "pi geons", "../etc", "a--b", "-a", "a_b", "1st", "operad-"])
def test_a_name_that_makes_no_package_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invalid plugin name"):
        render_plugin(name, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_name_of_an_installed_plugin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="operad-cli is already installed"):
        render_plugin("cli", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="not empty"):
        render_plugin("pigeons", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ConfigError, match="mine.txt is a file; choose another folder"):
        render_plugin("pigeons", tmp_path / "mine.txt")


def test_without_copier_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    with pytest.raises(ConfigError, match=r"pip install 'operad-cli\[new-plugin\]'"):
        render_plugin("pigeons", tmp_path / "x")


def test_the_template_is_part_of_the_package() -> None:
    assert (TEMPLATE / "copier.yml").is_file()


def test_the_command_writes_the_skeleton_and_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("copier", reason="copier is not installed: pip install operad-cli[new-plugin]")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(new_plugin, ["carrier-pigeons", "--description", 'They "carry".'])
    assert result.exit_code == 0, result.output
    assert "cd operad-carrier-pigeons" in result.output
    folder = tmp_path / "operad-carrier-pigeons"
    written = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert written == json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))["skeleton"]
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert "{{" not in text
    assert "class CarrierPigeonsConfig" in text
