"""A real collector gets what a command sends that was started as OpenTelemetry says, configured by its variables.

Rotel is the collector; it and `opentelemetry-instrument` are in an environment of their own, which `.ci/run` sets up.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from operad_testing import free_port
from tests.kit import LOCAL

ENVIRONMENT = Path(__file__).parent / ".venv"
AGENTS = list(ENVIRONMENT.glob("lib/python*/site-packages/rotel/rotel-agent"))
OPERATIONS = """
from operad import operation

@operation(namespace="t", type="query")
async def inner(context) -> int:
    await context.progress(1, 2, "half")
    return 1

@operation(namespace="t")
async def outer(context) -> int:
    return (await context.env.t.inner()).data
"""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

pytestmark = pytest.mark.skipif(
    not AGENTS, reason="needs tests/peers/collector/.venv with rotel and operad, which .ci/run makes"
)


class Collector:
    """A collector that writes what it gets."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.port = free_port()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    AGENTS[0], "start", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}",
                    "--otlp-http-endpoint", f"127.0.0.1:{self.port}", "--exporter", "blackhole",
                    "--debug-log", "traces", "--debug-log", "metrics", "--debug-log-verbosity", "detailed",
                    "--pid-file", log.with_suffix(".pid"), "--log-file", log.with_suffix(".agent"),
                ],
                stdout=output, stderr=output,
            )  # fmt: skip
        self._until(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _until(self, condition: object) -> None:
        for _ in range(1200):
            if condition():  # type: ignore[operator]  # a function, in this module
                return
            time.sleep(0.05)
        raise AssertionError(self._log.read_text())

    def got(self, *words: str) -> str:
        """What it wrote, when that has all of these words."""
        self._until(lambda: all(word in self._log.read_text() for word in words))
        return self._log.read_text()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path / "collector.log")
    yield made
    made.close()


def test_a_collector_gets_the_spans_their_events_and_the_metrics_of_a_command(
    collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "ops.py").write_text(OPERATIONS)
    (tmp_path / "operad.toml").write_text(LOCAL)
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "opentelemetry-instrument", ENVIRONMENT / "bin" / "operad", "call", "t.outer", "--data"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPERAD_"))},
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "OTEL_SERVICE_NAME": "shop",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_LOGS_EXPORTER": "none",
            "TRACEPARENT": f"00-{TRACE}-{PARENT}-01",
        },
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    text = collector.got(": t.outer\n", ": t.inner\n", "rpc.server.call.duration", "operad.calls.active")
    spans = {
        name: (trace, parent, own)
        for trace, parent, own, name in re.findall(
            r"Trace ID +: (\w+)\n +Parent ID +: (\w+)\n +ID +: (\w+)\n +Name +: ([\w.]+)", text
        )
    }
    outer, inner = spans["t.outer"], spans["t.inner"]
    assert outer[:2] == (TRACE, PARENT)
    assert inner[:2] == (TRACE, outer[2])
    assert "service.name: Str(shop)" in text
    assert "deployment.environment.name: Str(test)" in text
    assert re.search(r"Name: operad\.progress.*?message: Str\(half\)", text, re.S)
