"""What a command costs from a cold process, as a multiple of what bare Python takes to start.

``python benchmarks/cold.py [OPENAPI_DOCUMENT OPERATION [KEY=VALUE…]]``: processor time (user and system) and
elapsed time of whole processes, taken in turn, medians. Bare Python is ``python -c pass`` of the same environment.
Modules are compiled first, as installing compiles them; caches are warm. The configuration has a folder, three MCP
servers and, with a document, that: its operation is called at a server of this process's own that answers ``{}``.
``dead servers`` is a configuration whose three MCP servers never answer.

Run it with the Python of an environment that wheels were installed into, as users have it: in an editable one
bare Python starts more slowly, for the lines of ``.pth`` files, and every ratio looks better than it is. It says
which it is. Beside ours stands what the libraries alone take to import; of ``aiohttp`` a fifth, with OpenSSL 3.0,
is reading the certificates of the system twice.
"""

from __future__ import annotations

import compileall
import http.server
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROUNDS = 15
FUNCTION = """
from operad import operation

@operation(namespace="demo", type="query")
def greet(name: str) -> str:
    return f"Hello {name}"
"""
LISTS = 3
"""The rounds in which all is listed."""
SERVER = [str(Path(__file__).with_name("mcp_servers.py").resolve()), "stdio"]
DEAD = ["-c", "import sys; sys.stdin.read()"]


def configuration(server: list[str], more: str = "") -> str:
    """A folder, three times an MCP server, and more."""
    command = f'type = "mcp"\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(server)}\n'
    servers = "".join(f"[sources.tools{number}]\n{command}" for number in range(3))
    return f'[sources.local]\ntype = "scanner"\npath = "operations"\n{servers}{more}'


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers everything with an empty object."""

    def do_GET(self) -> None:
        """The answer."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def taken_ms(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The processor time and the elapsed time of a process, in ms."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command} failed: {done.stderr}")
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), 1000 * elapsed


def compile_modules() -> None:
    """Compile what is installed and, in an editable installation, our own modules."""
    for name in ("attr", "attrs", "pluggy", "msgspec", "cattrs", "aiohttp", "yarl", "click", "rich", "multidict"):
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            compileall.compile_dir(folder, quiet=2)
    for path in sys.path:
        if path.endswith("src"):
            compileall.compile_dir(path, quiet=2)


def main() -> None:
    """Measure and print."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    compile_modules()
    operad = str(Path(sys.executable).with_name("operad"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        environment["XDG_CACHE_HOME"] = f"{place}/cache"
        Path("operations").mkdir()
        Path("operations/demo.py").write_text(FUNCTION)
        more = ""
        complete = {"_OPERAD_COMPLETE": "bash_complete", "COMP_WORDS": "operad call demo.", "COMP_CWORD": "2"}
        cases = {
            "bare Python": ([sys.executable, "-c", "pass"], environment),
            "import asyncio, attrs, pluggy": (
                [sys.executable, "-c", "import asyncio, attrs, pluggy"],
                environment,
            ),
            "completion of an id": ([operad], {**environment, **complete}),
            "call of a scanned function": ([operad, "call", "demo.greet", "name=Ann"], environment),
            "the same, dead servers": ([operad, "-c", "dead.toml", "call", "demo.greet", "name=Ann"], environment),
        }
        if len(sys.argv) > 2:
            base = f"http://127.0.0.1:{server.server_port}"
            more = f'[sources.api]\ntype = "openapi"\nspec = {json.dumps(sys.argv[1])}\nbase_url = "{base}"\n'
            cases["import aiohttp"] = ([sys.executable, "-c", "import aiohttp"], environment)
            cases["call of an HTTP operation"] = (
                [operad, "call", f"api.{sys.argv[2]}", *sys.argv[3:]],
                environment,
            )
        cases["list of all"] = ([operad, "list"], environment)
        Path("operad.toml").write_text(configuration(SERVER, more))
        Path("dead.toml").write_text(configuration(DEAD, more))
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for turn in range(ROUNDS + 2):
            for name, (command, variables) in cases.items():
                if name == "list of all" and turn > LISTS + 1:
                    continue
                taken = taken_ms(command, variables)
                if turn > 1:  # the first two fill the caches
                    times[name].append(taken)
        os.chdir("/")
    server.shutdown()
    editable = any(path.endswith("src") for path in sys.path)
    print(f"Python {sys.version.split()[0]}, {'editable' if editable else 'wheels'}; times bare Python")
    bare = [statistics.median(each) for each in zip(*times["bare Python"], strict=True)]
    for name, each in times.items():
        medians = [statistics.median(kind) for kind in zip(*each, strict=True)]
        words = [
            f"{kind} {found:6.1f} ms {found / of:5.1f}"
            for kind, found, of in zip(("processor", "elapsed"), medians, bare, strict=True)
        ]
        print(f"{name:30} {'   '.join(words)}")


if __name__ == "__main__":
    main()
