"""The files of the package that ``operad stubs`` writes."""

from __future__ import annotations

import keyword
from pathlib import Path

from operad import ConfigError
from operad_cli.stubs.modules import MARK


def check_folder(folder: Path) -> None:
    """Raise `ConfigError` unless a folder is new, empty, or written by ``operad stubs``, and its name is valid."""
    name = folder.resolve().name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f'invalid package name "{name}": expected a Python identifier, such as shop_types')
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose a folder for the package")
    face = folder / "__init__.py"
    if any(folder.iterdir()) and not (face.is_file() and face.read_text("utf-8", "replace").startswith(MARK)):
        raise ConfigError(f"{folder} has other files; choose a new folder, or one written by operad stubs")


def _written(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    found = [*folder.glob("*.pyi"), folder / "__init__.py", folder / "py.typed"]
    return {path.name: path.read_text("utf-8", "replace") for path in found if path.is_file()}


def stale(folder: Path, files: dict[str, str]) -> list[str]:
    """Return the names of the files in a folder that differ from ``files``, are missing or should not be there."""
    written = _written(folder)
    return sorted(name for name in {*written, *files} if written.get(name) != files.get(name))


def write(folder: Path, files: dict[str, str]) -> None:
    """Write the files of a package, file name -> text, to a folder. Remove other ``.pyi`` files from it."""
    folder.mkdir(parents=True, exist_ok=True)
    for gone in _written(folder).keys() - files.keys():
        (folder / gone).unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
