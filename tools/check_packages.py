"""Build every distribution and look into what would be published."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def check(wheel: Path, project: dict[str, object]) -> list[str]:
    """What is wrong with a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        package = str(project["name"]).replace("-", "_")
        problems = [
            f"{wheel.name} lacks {wanted}"
            for wanted in (f"{package}/py.typed", f"{package}/__init__.py")
            if wanted not in names
        ]
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
            problems.append(f"{wheel.name} lacks its licence")
        stray = [name for name in names if not re.match(rf"{package}(-[^/]*\.dist-info)?/", name)]
        problems += [f"{wheel.name} holds {name}" for name in stray]
        entry_points = [name for name in names if name.endswith("entry_points.txt")]
        if ("entry-points" in project or "scripts" in project) and not entry_points:
            problems.append(f"{wheel.name} lacks its entry points")
    return problems


def main() -> int:
    """Build, look, and let twine check the metadata."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        subprocess.run(
            [sys.executable, "-m", "uv", "build", "--all-packages", "--quiet", "-o", folder], cwd=ROOT, check=True
        )
        members = [ROOT / "core", ROOT / "schema", *sorted((ROOT / "plugins").iterdir())]
        for member in members:
            project = tomllib.loads((member / "pyproject.toml").read_text())["project"]
            stem = f"{project['name'].replace('-', '_')}-{project['version']}"
            wheels = list(out.glob(f"{stem}-*.whl"))
            if len(wheels) != 1 or not (out / f"{stem}.tar.gz").is_file():
                problems.append(f"{project['name']}: expected one wheel and one sdist, got {len(wheels)} wheels")
            problems += [problem for wheel in wheels for problem in check(wheel, project)]
        distributions = [str(path) for path in sorted(out.iterdir()) if path.suffix in (".whl", ".gz")]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *distributions], check=True)
    for problem in problems:
        sys.stderr.write(problem + "\n")
    sys.stdout.write(f"{len(distributions)} distributions, {len(problems)} problems\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
