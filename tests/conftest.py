"""Wheels of everything, built once, and fresh environments to install them into."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).parents[1]


def find_uv() -> list[str]:
    """How uv is called here; skips where it is not."""
    candidates = [[path] for path in (os.environ.get("UV"), shutil.which("uv")) if path]
    candidates += [[python, "-m", "uv"] for python in (sys.executable, shutil.which("python3")) if python]
    for candidate in candidates:
        if subprocess.run([*candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip("uv is not installed: pip install uv")


@attrs.frozen
class Uv:
    """Runs uv: with what its cache holds first, then with the package index."""

    command: list[str]

    def __call__(self, *arguments: str, cwd: Path = ROOT) -> None:
        """Run it. Skips the test where a package is neither in the cache nor can be fetched."""
        environment = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "UV_PROJECT")}
        for offline in (["--offline"], []):
            command = [*self.command, *offline, *arguments]
            done = subprocess.run(
                command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            if done.returncode == 0:
                return
        if "error sending request" in done.stderr or "Failed to fetch" in done.stderr:
            pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
        pytest.fail(f"uv {' '.join(arguments)}:\n{done.stderr}")


@attrs.frozen
class Environment:
    """A virtual environment of its own."""

    folder: Path
    uv: Uv
    wheels: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    def install(self, *requirements: str | Path) -> None:
        """Install wheels and packages; our own come from the wheels of this repository."""
        ours = ("--find-links", str(self.wheels))
        self.uv("pip", "install", "--quiet", "--python", self.python, *ours, *map(str, requirements))

    def run(
        self, *arguments: str, cwd: Path | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run its Python."""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "OPERAD_PLUGINS", "OPERAD_DISABLE_PLUGINS", "OPERAD_LONG")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        return subprocess.run(
            [self.python, *arguments], cwd=cwd or self.folder, env=environment,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def records(self) -> list[dict[str, Any]]:
        """What `load_plugins` reports there."""
        code = "import json, operad; print(json.dumps([r.to_wire() for r in operad.load_plugins()]))"
        done = self.run("-W", "error", "-c", code)
        assert done.returncode == 0, done.stderr
        records: list[dict[str, Any]] = json.loads(done.stdout)
        return records


@pytest.fixture(scope="session")
def mypy_cache() -> str:
    """One cache for all that mypy checks: most of its time goes into what everything imports."""
    return str(ROOT / ".mypy_cache" / "tests")


@pytest.fixture(scope="session")
def uv() -> Uv:
    return Uv(find_uv())


@pytest.fixture(scope="session")
def wheels(uv: Uv, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution of the repository, and of each example that is one, by name."""
    out = tmp_path_factory.mktemp("wheels")
    uv("build", "--quiet", "--wheel", "--all-packages", "--out-dir", str(out))
    for example in sorted(ROOT.glob("examples/operad-*")):
        uv("build", "--quiet", "--wheel", "--out-dir", str(out), str(example))
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in out.glob("*.whl")}


@pytest.fixture(scope="session")
def make_environment(
    uv: Uv, tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]
) -> Callable[[Sequence[Any]], Environment]:
    """Make a fresh environment with the given wheels and packages."""

    def make(requirements: Sequence[Any]) -> Environment:
        folder = tmp_path_factory.mktemp("environment")
        uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        environment = Environment(folder, uv, wheels["operad"].parent)
        environment.install(*requirements)
        return environment

    return make
