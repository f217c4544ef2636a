"""The examples of serving do what they say."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"


async def call(app: Any, path: str) -> tuple[int, bytes]:
    """Status and body of a GET, without a server."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")], "server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_the_registry_in_a_fastapi_application_is_called_below_its_mount() -> None:
    pytest.importorskip("fastapi")
    app = runpy.run_path(str(EXAMPLES / "in_fastapi.py"))["app"]
    assert await call(app, "/gate/operations/math.add?a=1&b=2") == (200, b"3")
    assert await call(app, "/hello") == (200, b'"hello"')


def test_the_configuration_behind_the_proxy_names_what_the_proxy_passes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from operad import OperationRegistry
    from operad_serve.door.plan import plan_of

    monkeypatch.setenv("GATE_TOKEN", "x" * 20)
    registry = OperationRegistry.from_config(EXAMPLES / "operad.toml")
    plan = plan_of(
        registry, http=None, mcp=None, transport=None, health=None, identity=None, base_dir=EXAMPLES, mask_errors=True,
        servers={},
    )  # fmt: skip
    assert plan.http == ("127.0.0.1", 8000)
    assert plan.options.root_path == "/tools"
    proxy = (EXAMPLES / "nginx.conf").read_text(encoding="utf-8")
    (host,) = tomllib.loads((EXAMPLES / "operad.toml").read_text(encoding="utf-8"))["serve"]["allowed_hosts"]
    assert f"server_name {host};" in proxy
    assert f"location {plan.options.root_path}/" in proxy
    assert "proxy_buffering off;" in proxy
