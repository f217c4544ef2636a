"""Install the servers of many_servers.toml: ``python many_servers.py FOLDER``. Takes minutes, and the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

TABLE = Path(__file__).with_name("many_servers.toml")


def main(folder: Path) -> int:
    """Install what is not there yet; one that cannot be installed is named, and the others are."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "PUPPETEER_SKIP_DOWNLOAD": "1", "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"}
    packages = [entry["package"] for entry in table["npm"]]
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    failed = subprocess.call(["npm", "install", "--prefix", str(folder), *options, *packages], env=environ)
    for entry in table["pypi"]:
        name = re.split("[=<>]", entry["package"])[0]
        if (folder / name / "bin" / entry.get("bin", name)).exists():
            continue
        made = subprocess.call([sys.executable, "-m", "uv", "venv", "-q", "--clear", str(folder / name)])
        python = str(folder / name / "bin" / "python")
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, entry["package"]]
        # From elsewhere: the pins of this workspace are not theirs.
        failed |= made or subprocess.call(install, cwd=folder)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
