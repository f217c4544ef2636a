"""The steps of ``operad demo``."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from operad import OperationContext, OperationRegistry, OperationSpec, PluginError, load_plugins
from operad_cli.demo.bookshop import serve_bookshop
from operad_cli.output.results import print_envelope
from operad_cli.output.tables import print_specs
from operad_cli.output.text import paragraph, print_json, print_text, styled

OPERATIONS = Path(__file__).with_name("operations")

_NEEDED = {
    "aiohttp": "operad-openapi",
    "operad_openapi": "operad-openapi",
    "operad_mcp": "operad-mcp",
    "operad_scanner": "operad-scanner",
    "mcp_server_time": "mcp-server-time",
    "operad_serve": "operad-serve",
}


async def run_demo(*, keep: bool, as_json: bool) -> int:
    """Run the demo, and return the exit code. Raises `PluginError` if a distribution is missing."""
    missing = sorted({dist for module, dist in _NEEDED.items() if importlib.util.find_spec(module) is None})
    if missing:
        raise PluginError(
            f"the demo requires packages that are not installed: {', '.join(missing)}; "
            "run: pip install 'operad-cli[demo]'"
        )
    show = _Show(as_json)
    async with serve_bookshop() as url:
        show.step("1", f"Load three sources into one registry: the API at {url}, an MCP server, a folder")
        async with OperationRegistry(load_plugins(only=["openapi", "mcp", "scanner", "serve"])) as registry:
            await asyncio.gather(
                registry.load("openapi", namespace="shop", spec=f"{url}/openapi.json", base_url=url),
                registry.load(
                    "mcp",
                    namespace="time",
                    command=sys.executable,
                    args=["-m", "mcp_server_time", "--local-timezone", "UTC"],
                ),
                registry.load("scanner", namespace="demo", path=OPERATIONS),
            )
            show.specs(list(registry.specs()))

            show.step("2", "Call one of each: the result is always an envelope, and its meta names the source")
            await _call(show, registry, "demo.greet", {"name": "reader"})
            await _call(show, registry, "shop.getBook", {"bookId": 3})
            await _call(
                show,
                registry,
                "time.convert_time",
                {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"},
            )

            show.step("3", "Subscribe to a stream (server-sent events of the API)")
            async for envelope in registry.subscribe("shop.orderEvents", {}):
                show.envelope("shop.orderEvents", envelope)

            show.step("4", "Nest calls: demo.offer, a local function, calls the API and the MCP server")
            await _call(show, registry, "demo.offer", {"max_price": 11.5, "timezone": "Asia/Tokyo"})
            show.end(keep=keep)
            if keep:
                await _keep(registry, url)
    return 0


async def _call(show: _Show, registry: OperationRegistry, operation_id: str, input: dict[str, Any]) -> None:
    context = OperationContext(trusted=True)
    show.envelope(operation_id, await registry.execute(operation_id, input, context, timeout=30), input)


async def _keep(registry: OperationRegistry, url: str) -> None:
    """Keep the API running and serve the registry until Ctrl-C."""
    from operad_auth.http import until_stopped
    from operad_cli.mcp_hosts import url_entry
    from operad_serve import FrontDoor, Plan, ServeOptions

    plan = Plan(options=ServeOptions(title="The demo of operad"), http=("127.0.0.1", 0))
    with until_stopped() as stopped:
        door = FrontDoor(registry, plan, stopped)
        async with door.open():
            entry = json.dumps(url_entry("cursor", "operad", f"{door.url}/mcp", {}))
            lines = (
                f"The API runs at {url}, and all operations are served at {door.url}, until Ctrl-C:",
                "",
                f"  explorer   {door.url}/",
                f"  OpenAPI    {door.url}/openapi.json",
                f"  MCP        {door.url}/mcp",
                f"             {entry}",
                "",
                "In another terminal, try:",
                "",
                f"  curl '{door.url}/operations/shop.listBooks?maxPrice=10'",
                f"  curl -N {door.url}/operations/shop.orderEvents",
                f"  operad serve --mcp stdio --openapi {url}/openapi.json    # for an MCP host to start",
                "",
            )
            print_text("\n" + "\n".join(lines))
            await stopped.wait()


class _Show:
    """The output of the demo: text for each step, or one JSON document when the demo has finished."""

    def __init__(self, as_json: bool) -> None:
        self._json: dict[str, Any] | None = {"operations": [], "calls": []} if as_json else None

    def step(self, number: str, text: str) -> None:
        if self._json is None:
            print_text(f"\n{styled(paragraph(f'{number}. {text}', indent=''), 'bold')}\n")

    def specs(self, specs: list[OperationSpec]) -> None:
        if self._json is None:
            print_specs(specs)
        else:
            self._json["operations"] = [spec.to_wire(schemas=False) for spec in specs]

    def envelope(self, operation_id: str, envelope: Any, input: dict[str, Any] | None = None) -> None:
        if self._json is not None:
            self._json["calls"].append({"operationId": operation_id, "envelope": envelope.to_wire()})
            return
        if input is not None:
            arguments = " ".join(f"{key}={json.dumps(value)}" for key, value in input.items())
            print_text(f"{styled('$', 'dim')} operad call {operation_id} {arguments}")
        print_envelope(envelope, as_json=False)

    def end(self, *, keep: bool) -> None:
        if self._json is not None:
            print_json(self._json)
        else:
            more = "" if keep else " `operad demo --keep` keeps the API running to try it."
            text = f"That was one registry, one way to call, one kind of result.{more}"
            print_text("\n" + paragraph(text, indent=""))
