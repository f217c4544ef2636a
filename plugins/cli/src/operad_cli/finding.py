"""Finding the configuration, with nothing imported that a completion does not need."""

from __future__ import annotations

import os


def find(path: str | None = None) -> str | None:
    """The configuration to use: ``path``, ``$OPERAD_CONFIG``, or the nearest one from this folder upwards."""
    if path is not None:
        return path
    if named := os.environ.get("OPERAD_CONFIG"):
        return named
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        return None
    while True:
        if os.path.isfile(own := os.path.join(folder, "operad.toml")):
            return own
        if os.path.isfile(project := os.path.join(folder, "pyproject.toml")) and _has_tables(project):
            return project
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _has_tables(project: str) -> bool:
    try:
        with open(project, encoding="utf-8", errors="replace") as file:
            return "[tool.operad" in file.read()
    except OSError:  # somebody else's
        return False
