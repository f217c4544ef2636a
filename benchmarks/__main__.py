"""Every figure of the project as a ratio to a floor or a peer of the same run.

    python -m benchmarks            all of them, one after the other
    python -m benchmarks core ...   some of them
    python -m benchmarks core --save results    and keep the output and the comparisons as JSON
    python -m benchmarks openapi -- load        one of them, with arguments of its own
    python -m benchmarks --plots results        draw the comparisons of a folder (uv run --group benchmark)

Each benchmark is a program of its own and runs in an interpreter of its own, so that none warms up or burdens
another one. One that fails is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import results

FOLDER = Path(__file__).parent
ORDER = (
    "core",
    "embedding",
    "schemas",
    "loading",
    "hints",
    "calls",
    "calls_peers",
    "brokers",
    "openapi",
    "mcp_clients",
    "serving",
    "serving_mcp",
    "serving_proxies",
    "opentelemetry_spans",
    "rules",
)


def available() -> list[str]:
    return [name for name in ORDER if (FOLDER / f"{name}.py").is_file()]


def run(name: str, folder: Path | None, arguments: list[str]) -> int:
    """Run one, and show what it prints; with a folder, keep it there. Return its exit code."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
    if folder is None:
        return subprocess.run(command, check=False).returncode
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(temporary) / "comparisons"
        kept.touch()
        shown = []
        environment = {**os.environ, results.FILE: str(kept)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                shown.append(line)
        saved = {
            "command": " ".join(["python -m benchmarks", name, *(["--", *arguments] if arguments else [])]),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "exit": process.returncode,
            "comparisons": [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()],
            "output": "".join(shown),
        }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
    return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(available())}")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the results there, as JSON")
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="draw the results of this folder; run nothing"
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where the pictures go; default: beside them")
    given = sys.argv[1:]
    place = given.index("--") if "--" in given else len(given)
    options, arguments = parser.parse_args(given[:place]), given[place + 1 :]
    if options.plots is not None:
        for path in results.draw(options.plots, options.into or options.plots):
            print(path)
        return 0
    names = options.names or available()
    if unknown := sorted(set(names) - set(available())):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(available())}")
    if arguments and len(names) != 1:
        parser.error("arguments after -- need the name of one benchmark")
    failed = []
    for name in names:
        print(f"\n##### {name}", flush=True)
        started = time.monotonic()
        code = run(name, options.save, arguments)
        print(f"({time.monotonic() - started:.0f} s)", flush=True)
        if code:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
