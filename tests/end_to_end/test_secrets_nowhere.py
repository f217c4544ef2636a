"""Secrets are in no log, repr, error, span or screen of any distribution, whatever goes well or wrong."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from operad import CallError, Identity, OperationContext, OperationRegistry, load_plugins, operation
from operad_auth import StaticTokens
from operad_mcp import to_mcp
from operad_opentelemetry import Telemetry
from operad_serve import to_openapi
from plugins.serve.tests.front_door import served
from tests.kit import openapi
from tools import references

SECRET = "t0p-s3cret-0123456789-0123456789"  # it opens nothing
WRONG = "wr0ng-s3cret-0123456789-012345678"
_HIDDEN = re.compile(r"token|secret|password|private_key|state_key|headers|cookies|env$|inputs|assertion")


# --- what is written down -----------------------------------------------------------------------------


def _classes() -> Iterator[tuple[str, type[Any]]]:
    found = references.tables()
    yield from ((title, cls) for title, (cls, _) in found.items())
    yield from ((name, cls) for cls, name in references.homes_of(found).items())


def _filled(field: attrs.Attribute[Any], hint: str) -> Any:
    """A value with a secret in it, of the field's own type; ``None`` where it has no place for one."""
    if field.name in ("inherit_env", "keep_cookies", "proxy_headers", "request_headers"):
        return None
    if "_file" in field.name or field.name.endswith(("_url", "_name", "_method", "token_endpoint_auth_method")):
        return f"https://me:{SECRET}@h/x?key={SECRET}" if field.name.endswith("_url") else None
    if field.name in ("url", "proxy", "base_url", "spec"):
        return f"http://me:{SECRET}@h/x?key={SECRET}"
    if not _HIDDEN.search(field.name):
        return None
    return {"A": SECRET} if "dict" in hint else [SECRET] if "list" in hint else SECRET


_NEEDED: dict[str, dict[str, Any]] = {
    "HTTPAuth": {"type": "bearer"},
    "MCPSourceConfig": {"command": "x"},
    "OpenAPISourceConfig": {"spec": "x.json"},
    "ScannerConfig": {"path": "x"},
    "JWTOptions": {"issuer": "https://i", "audience": "a"},
    "TokenRecord": {"id": "me"},
    "NATSTransport": {"servers": [f"nats://me:{SECRET}@h"]},
}
_SCHEMES = {"RemoteConfig": "ws", "WebSocketTransport": "ws", "RedisTransport": "redis"}


@pytest.mark.parametrize(("title", "cls"), [pytest.param(title, cls, id=title) for title, cls in _classes()])
def test_a_secret_of_a_table_is_not_in_the_repr_of_what_it_becomes(title: str, cls: type[Any]) -> None:
    needed = _NEEDED.get(cls.__name__, {})
    for field in attrs.fields(cls):
        is_given = field.name in needed and field.name != "spec"
        if not field.init or is_given or (value := _filled(field, str(field.type))) is None:
            continue
        given = {**needed, field.alias: value}
        if cls.__name__ == "MCPSourceConfig" and field.name == "url":
            del given["command"]
        if scheme := _SCHEMES.get(cls.__name__):
            given["url"] = f"{scheme}://me:{SECRET}@h" if field.name == "url" else f"{scheme}://h"
        try:
            made = cls(**given)
        except Exception as error:  # a validator may want more; it does not say the value
            made = error
        assert SECRET not in repr(made), f"{title}.{field.alias}"


# --- what happens -------------------------------------------------------------------------------------


@operation(namespace="vault", type="query")
async def size(text: str) -> int:
    """How long it is."""
    return len(text)


CONFIGURATION = Path(__file__).with_name("secrets.toml").read_text()


async def test_nothing_that_a_process_tells_of_its_sources_and_calls_holds_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    theirs = OperationRegistry(load_plugins())
    theirs.register(size)
    tokens = StaticTokens({SECRET: Identity("me")})
    told: list[str] = []
    async with (
        theirs,
        served(to_openapi(theirs, authenticate=tokens)) as url,
        served(to_mcp(theirs, authenticate=tokens).asgi(), lifespan="on") as mcp,
    ):
        document = openapi({"/operations/vault.size": {"get": {"operationId": "size", "responses": {}}}})
        (tmp_path / "document.json").write_text(json.dumps(document))
        text, userinfo = CONFIGURATION, url.replace("//", f"//me:{SECRET}@")
        for word, value in (
            ("SECRET", SECRET),
            ("WRONG", WRONG),
            ("USERINFO", userinfo),
            ("HTTP", url),
            ("MCP", mcp),
        ):
            text = text.replace(word, value)
        (tmp_path / "operad.toml").write_text(text)
        plugins = load_plugins()
        plugins.register(Telemetry(provider), "telemetry")
        registry = OperationRegistry.from_config(tmp_path, plugins=plugins)
        registry.observe(
            lambda call: told.append(repr(call)), lambda call, outcome: told.append(repr((call, outcome)))
        )
        async with registry:
            ids = [spec.id for spec in registry.specs()]
            assert {failure.name for failure in registry.failures} >= {"program", "hub", "mistake", "worse"}
            assert {"right.vault.size", "wrong.size"} <= set(ids)
            told += [repr(registry), repr(registry.configuration), repr(registry.plugins), repr(registry.failures)]
            told += [repr(state) for state in registry.sources.states()]
            told += ["".join(traceback.format_exception(failure.error)) for failure in registry.failures]
            for each in ids:
                for value in ({"text": "a"}, {"text": 3}):
                    try:
                        answer = await registry.execute(each, value, OperationContext(trusted=True), timeout=5)
                        told.append(repr(answer.meta))
                    except CallError as error:
                        told += ["".join(traceback.format_exception(error)), repr(error.to_wire())]
    # uvicorn's are those of the servers that this test runs for the other side.
    records = [record for record in caplog.records if not record.name.startswith("uvicorn")]
    told += [record.getMessage() + str(record.exc_text) for record in records]
    spans = exporter.get_finished_spans()
    told += [span.to_json() for span in spans]
    assert len(spans) >= len(ids)
    assert any("401" in line for line in told)
    assert [line for line in told if SECRET in line or WRONG in line] == []


@pytest.mark.parametrize("end", ["/x@h:9/", "#x@h:9/", "?x@h:9/"])
@pytest.mark.parametrize(
    "table",
    [
        'type = "openapi"\nspec = "http://URL"',
        'type = "openapi"\nspec = "document.json"\nbase_url = "http://URL"',
        'type = "openapi"\nspec = "document.json"\nbase_url = "http://127.0.0.1:9"\nproxy = "http://URL"',
        'type = "mcp"\nurl = "http://URL"',
        'type = "mcp"\nurl = "http://127.0.0.1:9"\nproxy = "http://URL"',
        *(f'type = "remote"\nurl = "{scheme}://URL"' for scheme in ("ws", "nats", "redis")),
    ],
)
async def test_a_password_that_is_not_percent_encoded_is_in_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, end: str
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "document.json").write_text(json.dumps(openapi({"/a": {"get": {"responses": {}}}})))
    (tmp_path / "operad.toml").write_text(f"[sources.a]\n{table}".replace("URL", f"me:{SECRET}{end}"))
    registry = OperationRegistry.from_config(tmp_path, plugins=load_plugins())
    async with registry:
        (failure,) = registry.failures
        assert SECRET not in "".join(traceback.format_exception(failure.error))
    assert SECRET not in caplog.text
