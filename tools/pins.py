"""Write the pins of pyproject.toml anew: the newest versions of everything the workspace installs.

Run it with ``uv run --no-project tools/pins.py``. The versions come from a resolution of the whole workspace,
with all groups and extras, in a copy of it; the lock file itself, which names registry hosts, is thrown away.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "# --- pins, written by tools/pins.py ---\n", "# --- end of pins ---\n"


def pins(folder: Path) -> list[str]:
    """``name==version ; marker`` of everything that the workspace in ``folder`` resolves to."""
    command = ["uv", "export", "--all-packages", "--all-groups", "--all-extras", "--no-hashes", "--no-annotate"]
    lines = subprocess.run(
        [sys.executable, "-m", *command, "--no-header", "--no-emit-workspace", "--quiet"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return sorted({line.strip() for line in lines if "==" in line and not line.startswith(("-", "#"))})


def build_pins(folder: Path) -> list[str]:
    """The same for what builds the distributions."""
    requirements = "hatchling\neditables\n"
    lines = subprocess.run(
        [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "-",
            "--no-header",
            "--no-annotate",
            "--quiet",
            "--universal",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        input=requirements,
    ).stdout.splitlines()
    return [line.strip() for line in lines if "==" in line]


def main() -> None:
    """Resolve in a copy, then rewrite the block between the two marks."""
    path = ROOT / "pyproject.toml"
    text = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), BEGIN + END, path.read_text(), flags=re.DOTALL)
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "workspace"
        ignored = shutil.ignore_patterns(".venv", ".git", "node_modules", "tests", "__pycache__", "uv.lock")
        shutil.copytree(ROOT, copy, ignore=ignored)
        (copy / "pyproject.toml").write_text(text)
        found, building = pins(copy), build_pins(Path(temporary))
    block = "".join(
        f"{name} = [\n" + "".join(f'  "{pin}",\n' for pin in values).replace("\\", "\\\\") + "]\n"
        for name, values in (("constraint-dependencies", found), ("build-constraint-dependencies", building))
    )
    path.write_text(text.replace(BEGIN + END, BEGIN + block + END))
    sys.stdout.write(f"{len(found)} pins, {len(building)} build pins\n")


if __name__ == "__main__":
    main()
