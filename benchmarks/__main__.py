"""Every figure of the project as a ratio to a floor or a peer of the same run.

    python -m benchmarks            all of them, one after the other
    python -m benchmarks core ...   some of them

Each benchmark is a program of its own and runs in an interpreter of its own, so that none warms up or burdens
another one. One that fails is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(available())}")
    names = parser.parse_args().names or available()
    if unknown := sorted(set(names) - set(available())):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(available())}")
    failed = []
    for name in names:
        print(f"\n##### {name}", flush=True)
        started = time.monotonic()
        done = subprocess.run([sys.executable, FOLDER / f"{name}.py"], check=False)
        print(f"({time.monotonic() - started:.0f} s)", flush=True)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
