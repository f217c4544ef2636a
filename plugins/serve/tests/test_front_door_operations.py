"""What an operator needs of the front door: the access log, metrics, health, HTTPS, bounded results."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from operad import ConfigError, OperationRegistry
from operad_auth import TokenRecord
from operad_serve import FrontDoor, Plan, ServeOptions, to_openapi
from operad_serve.asgi import Gate
from operad_serve.door.requests import Metrics, Requests, access_log
from operad_serve.listening import TLSFiles
from plugins.serve.tests import front_door

JOE = {"Authorization": "Bearer joe-token-123456"}
TOKENS = [TokenRecord(token="joe-token-123456", id="joe")]


@asynccontextmanager
async def door_client(
    registry: OperationRegistry, tls: TLSFiles | None = None, **options: Any
) -> AsyncIterator[front_door.Client]:
    """A client of the front door of a registry."""
    plan = Plan(options=ServeOptions(**options), http=("127.0.0.1", 0), tls=tls)
    door = FrontDoor(registry, plan, asyncio.Event())
    async with door.open(), aiohttp.ClientSession() as session:
        assert door.url is not None
        yield front_door.Client(session, door.url)


@contextmanager
def logged(name: str) -> Iterator[list[Any]]:
    """The lines of JSON that a logger writes."""
    log, handler, lines = logging.getLogger(name), logging.Handler(), list[Any]()
    handler.emit = lambda record: lines.append(json.loads(record.getMessage()))
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


async def test_the_access_log_has_one_line_of_json_for_each_request(registry: OperationRegistry) -> None:
    with logged("operad.serve.access") as lines:
        async with door_client(registry, access_log=True, tokens=TOKENS) as client:
            good = await client("GET", "/operations/shop.add?a=1", headers=JOE)
            bad = await client("POST", "/operations/shop.add", json={"a": 1})
            foreign = await client("GET", "/health", headers={"Host": "evil.example"})
    ids = [answer.headers["Operad-Request-Id"] for answer in (good, bad, foreign)]
    assert [line["requestId"] for line in lines] == ids
    assert [re.fullmatch("[0-9a-f]{16}-([0-9])", id)[1] for id in ids] == ["1", "2", "3"]
    assert [(line["method"], line["path"], line["status"], line["identity"]) for line in lines] == [
        ("GET", "/operations/shop.add", 200, "joe"),
        ("POST", "/operations/shop.add", 401, None),
        ("GET", "/health", 421, None),
    ]
    assert (lines[0]["bytes"], lines[0]["client"]) == (len(good.body), "127.0.0.1")
    assert bad.json()["requestId"] == lines[1]["requestId"]


async def test_metrics_count_requests_operations_and_sources(registry: OperationRegistry) -> None:
    async with door_client(registry) as client:
        await client("GET", "/operations/shop.add?a=1")
        await client("GET", "/operations/shop.nope")
        answer = await client("GET", "/metrics")
    assert answer.content_type == "application/openmetrics-text"
    families = text_string_to_metric_families(answer.body.decode())
    samples = {
        (sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples
    }
    assert samples.pop(("operad_http_request_seconds_sum",)) > 0
    assert {
        ("operad_operations",): len(registry),
        ("operad_http_requests_in_progress",): 1,
        ("operad_http_requests_total", "200"): 1,
        ("operad_http_requests_total", "404"): 1,
        ("operad_http_request_seconds_bucket", "+Inf"): 2,
        ("operad_http_request_seconds_count",): 2,
    }.items() <= samples.items()


def test_the_access_log_goes_to_standard_error_unless_it_has_a_handler(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("operad.serve.access")
    before = list(log.handlers), log.level, log.propagate
    log.handlers.clear()  # another test may have started a server
    try:
        for _ in range(2):
            assert access_log() is log
        log.info("%s", '{"a": 1}')
        assert capsys.readouterr().err == '{"a": 1}\n'
        assert not log.propagate
    finally:
        log.handlers[:], log.level, log.propagate = before


async def test_requests_are_counted_by_status_and_time_also_if_their_client_leaves(
    registry: OperationRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        now[0] += scope["seconds"]
        if scope["seconds"] < 50:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok", "more_body": True})
            await send({"type": "http.response.body"})

    async def send(message: Any) -> None: ...

    log = logging.getLogger("operad.serve.counted")
    log.setLevel(logging.INFO)
    requests = Requests(app, log)
    with logged("operad.serve.counted") as lines:
        for seconds in (0.005, 0.0061234, 1.0, 100.0):
            await requests({"type": "http", "method": "GET", "path": "/", "seconds": seconds}, asyncio.sleep, send)
        await requests({"type": "lifespan", "seconds": 60.0}, asyncio.sleep, send)
    assert requests.statuses == {200: 3, 0: 1}
    assert requests.durations == [1, 1, 0, 0, 1, 0, 0, 1]
    assert requests.in_progress == 0
    samples = requests.histogram()
    assert (samples["_count"], samples["_sum"]) == (4, 101.011123)
    assert [samples[f'_bucket{{le="{bound}"}}'] for bound in ("0.005", "2.5", "+Inf")] == [1, 3, 4]
    assert [(line["status"], line["bytes"], line["ms"], line["client"]) for line in lines] == [
        (200, 2, 5, None), (200, 2, 6.12, None), (200, 2, 1000, None), (None, 0, 100_000, None),
    ]  # fmt: skip
    assert len({line["requestId"] for line in lines}) == 4
    metrics = Metrics(registry, Gate())
    assert "operad_http_requests" not in metrics.text()
    with pytest.raises(NotImplementedError):
        await metrics({"type": "lifespan"}, asyncio.sleep, send)
    for method, status, allow in (("GET", 200, None), ("HEAD", 200, None), ("POST", 405, "GET, HEAD")):
        answer = await front_door.asked(metrics, method, "/metrics")
        assert (answer.status, answer.headers.get("allow")) == (status, allow)


async def test_metrics_require_credentials_if_callers_are_authenticated(registry: OperationRegistry) -> None:
    async with door_client(registry, tokens=TOKENS) as client:
        assert (await client("GET", "/metrics")).status == 401
        assert (await client("GET", "/metrics", headers=JOE)).status == 200
        assert (await client("POST", "/metrics", headers=JOE)).status == 405


BROKEN = '[sources.broken]\ntype = "scanner"\npath = "nowhere.py"\n'
GOOD = '[sources.good]\ntype = "scanner"\npath = "ops.py"\n'


@pytest.mark.parametrize(
    ("config", "status", "expected"),
    [
        (GOOD, 200, {"status": "ok", "ready": True}),
        (GOOD + BROKEN, 200, {"status": "ok", "ready": True, "failedSources": ["broken"]}),
        (BROKEN, 503, {"status": "failed", "ready": False, "failedSources": ["broken"]}),
    ],
)
async def test_health_names_failed_sources_and_is_not_ready_if_all_failed(
    tmp_path: Path, config: str, status: int, expected: dict[str, Any]
) -> None:
    pytest.importorskip("operad_scanner")
    (tmp_path / "operad.toml").write_text(config)
    (tmp_path / "ops.py").write_text("def add(a: int, b: int) -> int: ...")
    async with OperationRegistry.from_config(tmp_path / "operad.toml") as registry:
        async with front_door.client_of(to_openapi(registry)) as client:
            answer = await client("GET", "/health")
            assert (answer.status, answer.json()) == (status, expected)
        async with door_client(registry) as client:
            assert (await client("GET", "/health")).json() == expected


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> TLSFiles:
    """A certificate for 127.0.0.1 that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", *key.split(), *name, *files], check=True, capture_output=True)
    return TLSFiles(folder / "cert.pem", folder / "key.pem")


async def test_a_certificate_makes_the_front_door_speak_https(
    registry: OperationRegistry, certificate: TLSFiles
) -> None:
    trusted = ssl.create_default_context(cafile=str(certificate.cert))
    async with door_client(registry, tls=certificate) as client:
        assert client.base.startswith("https://127.0.0.1:")
        answer = await client("GET", "/operations/shop.add?a=1", ssl=trusted)
        assert (answer.status, answer.json()) == (200, 3)


def test_files_that_are_no_certificate_are_refused_before_anything_is_served(
    tmp_path: Path, certificate: TLSFiles
) -> None:
    options = ServeOptions(cert=str(certificate.cert), key=str(certificate.key))
    assert options.tls(tmp_path) == certificate
    assert ServeOptions().tls(tmp_path) is None
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for options, complaint in (
        (ServeOptions(cert="missing.pem"), "missing.pem: No such file"),
        (ServeOptions(cert="wrong.pem"), "expected a certificate"),
        (ServeOptions(cert=str(certificate.cert)), "expected a certificate"),
        (ServeOptions(key="key.pem"), "expected cert as well"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            options.tls(tmp_path)


async def test_an_idle_connection_stays_open_as_long_as_keep_alive_says(registry: OperationRegistry) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with (
        door_client(registry, keep_alive=0.2) as client,
        front_door.connected(client.base, request) as reader,
        asyncio.timeout(4),  # less than the 5 s of uvicorn
    ):
        assert (await reader.read()).startswith(b"HTTP/1.1 200")


async def test_a_result_larger_than_result_bytes_is_an_error_for_calls_and_streams(
    registry: OperationRegistry,
) -> None:
    async with front_door.client_of(to_openapi(registry, result_bytes=20)) as client:
        assert (await client("POST", "/operations/shop.growing", json={"n": 18})).body.count(b"id: ") == 2
        assert (await client("GET", "/operations/shop.add?a=1")).json() == 3
        problem = await client.problem("POST", "/operations/shop.find", json={"names": ["a" * 20]})
        assert problem["code"] == "PAYLOAD_TOO_LARGE"
        assert problem["details"] == {"limit": "result_bytes", "bytes": 20}
        envelope = {"Accept": "application/vnd.operad.envelope+json"}
        assert (await client("POST", "/operations/shop.add", json={"a": 1}, headers=envelope)).status == 413
        stream = front_door.events((await client("POST", "/operations/shop.growing", json={"n": 40})).body)
        assert [event.event for event in stream] == ["message", "operad.error"]
        assert json.loads(stream[-1].data)["code"] == "PAYLOAD_TOO_LARGE"
