"""What finding and loading plugins costs; every figure is a ratio to a floor of the same run.

    python benchmarks/loading.py [--rounds N]

Fresh interpreters, in turn; processor time, so that what else the machine does counts little; the median of the
rounds. The interpreter's own start is not counted. ``load_plugins`` counts everything that it imports, plugins
included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FLOOR = """
import time
started = time.process_time()
import attrs, pluggy
print(time.process_time() - started)
"""
TIMED = """
import json, sys, time
started = time.process_time()
import operad
imported = time.process_time()
plugins = operad.load_plugins()
loaded = time.process_time()
again = operad.load_plugins()
warm = time.process_time()
times = [imported - started, loaded - imported, warm - loaded]
print(json.dumps([*times, [record.status for record in plugins], sorted(sys.modules)]))
"""
HEAVY = ("aiohttp", "grpc", "jsonschema", "mcp", "nats", "pydantic", "redis")


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def measured(path: str = "") -> tuple[float, float, float, list[str], set[str]]:
    """Seconds for the import, the first and a second `load_plugins`; the plugins' statuses; imported modules."""
    code = f"import sys; sys.path.append({path!r})\n{TIMED}" if path else TIMED
    imported, loaded, warm, statuses, modules = json.loads(run(code))
    return imported, loaded, warm, statuses, {module.partition(".")[0] for module in modules}


def many_distributions(folder: Path, count: int) -> None:
    """Distributions that have entry points, none of them operad's."""
    for number in range(count):
        info = folder / f"bulk{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bulk{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[console_scripts]\nbulk{number} = bulk:main\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        many_distributions(Path(folder), 300)
        floor, here, bulk = [], [], []
        for _ in range(rounds):
            floor.append(float(run(FLOOR)))
            here.append(measured())
            bulk.append(measured(folder))
    of_floor = statistics.median(floor)
    imported, loaded, warm, in_bulk = (
        statistics.median(column)
        for column in ([m[0] for m in here], [m[1] for m in here], [m[2] for m in here], [m[1] for m in bulk])
    )
    statuses, modules = here[0][3:]
    plugins = statuses.count("loaded")
    rows = [
        ("import operad / import attrs, pluggy", imported, of_floor, "<= 1"),
        (f"and load_plugins, {plugins} plugins / the same", imported + loaded, of_floor, "<= 4"),
        ("load_plugins again / the first time", warm, loaded, ""),
        ("load_plugins with 300 more distributions / without", in_bulk, loaded, ""),
    ]
    print(f"{'':58} {'ms':>7} {'of ms':>7} {'ratio':>6}  goal")
    for name, figure, other, goal in rows:
        print(f"{name:58} {figure * 1000:7.1f} {other * 1000:7.1f} {figure / other:6.2f}  {goal}")
    print("imported after load_plugins, of the heavy ones:", ", ".join(sorted(modules & set(HEAVY))) or "none")


if __name__ == "__main__":
    main()
