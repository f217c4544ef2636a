"""Build what a release publishes into ``dist/``, check it, and write its bill of materials.

``python tools/release.py`` needs the network: it asks PyPI for known vulnerabilities of the pinned dependencies. A
finding fails it. So does a dependency that PyPI does not know, which may happen behind a mirror, unless
``--allow-unaudited`` is given; the bill of materials and the distributions are written before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def run(*command: str) -> None:
    """Run a program of this environment."""
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)


def audit(pins: Path) -> dict[str, Any]:
    """Return the report of pip-audit about pinned requirements."""
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run([*command, "-f", "json", "-r", str(pins)], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"pip-audit made no report:\n{done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def problems(report: dict[str, Any], *, allow_unaudited: bool) -> list[str]:
    """Print how much of a report was audited, and return what must keep a release from being published."""
    found, unknown = [], []
    for dependency in report["dependencies"]:
        if "skip_reason" in dependency:
            unknown.append(dependency["name"])
        for each in dependency.get("vulns", ()):
            fixed = ", ".join(each["fix_versions"]) or "no version"
            found.append(f"{dependency['name']} {dependency['version']}: {each['id']}, fixed in {fixed}")
    count = len(report["dependencies"])
    print(f"audited {count - len(unknown)} of {count} dependencies, {len(found)} known vulnerabilities")
    if unknown:
        print("not in the database:", ", ".join(unknown))
    if unknown and not allow_unaudited:
        found.append(
            f"not audited: {len(unknown)} of {count} dependencies; try another index or --allow-unaudited"
        )
    return found


def main() -> None:
    """Check, build, write the bill of materials, look up vulnerabilities."""
    parser = argparse.ArgumentParser(prog="release.py", description="Build and check what a release publishes.")
    parser.add_argument("--allow-unaudited", action="store_true", help="pass with dependencies that PyPI lacks")
    options = parser.parse_args()
    subprocess.run([sys.executable, str(ROOT / "tools" / "check_packages.py")], check=True)
    shutil.rmtree(DIST, ignore_errors=True)
    run("uv", "build", "--all-packages", "--quiet", "-o", str(DIST))
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "requirements.txt"
        # What users install with the extra `all`, at the pinned versions.
        run("uv", "export", "--quiet", "--package", "operad", "--extra", "all", "--no-default-groups",
            "--no-hashes", "--no-emit-workspace", "--no-annotate", "--no-header", "-o", str(pins))  # fmt: skip
        run("cyclonedx_py", "requirements", str(pins), "--output-reproducible", "-o", str(DIST / "sbom.cdx.json"))
        report = audit(pins)
    if found := problems(report, allow_unaudited=options.allow_unaudited):
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
