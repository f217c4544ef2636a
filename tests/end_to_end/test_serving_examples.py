"""The examples of serving do what they say."""

from __future__ import annotations

import runpy
import tomllib

import pytest

from operad import OperationRegistry
from operad_serve.door.plan import plan_of
from plugins.serve.tests.front_door import client_of
from tests.kit import ROOT

EXAMPLES = ROOT / "examples" / "serving"


async def test_the_registry_in_a_fastapi_application_is_called_below_its_mount() -> None:
    pytest.importorskip("fastapi")
    app = runpy.run_path(str(EXAMPLES / "in_fastapi.py"))["app"]
    async with client_of(app) as call:
        for path, body in (("/gate/operations/math.add?a=1&b=2", b"3"), ("/hello", b'"hello"')):
            answer = await call("GET", path)
            assert (answer.status, answer.body) == (200, body)


def test_the_configuration_behind_the_proxy_names_what_the_proxy_passes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
