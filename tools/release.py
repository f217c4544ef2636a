"""Build what a release publishes into ``dist/``, check it, and write its bill of materials.

``python tools/release.py`` needs the network: it asks for known vulnerabilities of the pinned dependencies.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def run(*command: str) -> None:
    """Run a program of this environment."""
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)


def main() -> None:
    """Check, build, look up vulnerabilities, write the bill of materials."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "check_packages.py")], check=True)
    shutil.rmtree(DIST, ignore_errors=True)
    run("uv", "build", "--all-packages", "--quiet", "-o", str(DIST))
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "requirements.txt"
        # What users install with the extra `all`, at the pinned versions.
        run("uv", "export", "--quiet", "--package", "operad", "--extra", "all", "--no-default-groups",
            "--no-hashes", "--no-emit-workspace", "--no-annotate", "--no-header", "-o", str(pins))  # fmt: skip
        run("cyclonedx_py", "requirements", str(pins), "--output-reproducible", "-o", str(DIST / "sbom.cdx.json"))
        run("pip_audit", "--strict", "--no-deps", "--disable-pip", "-r", str(pins))


if __name__ == "__main__":
    main()
