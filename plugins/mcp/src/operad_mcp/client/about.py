"""The operations on a server itself, such as ``server.about``."""

from __future__ import annotations

from typing import Any

from operad import OperationContext, ResponseEnvelope
from operad_mcp.client.items import AnyOperation, Json, Maker, envelope_of, meta_of

_ABOUT: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "protocolVersion": {"type": "string"},
        "server": {"type": "object"},
        "capabilities": {"type": "object"},
        "instructions": {"type": ["string", "null"], "description": "The server's instructions for its use."},
    },
    "required": ["name", "protocolVersion", "server", "capabilities", "instructions"],
}
_COMPLETE: Json = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The name of a prompt."},
        "template": {"type": "string", "description": "The URI template of resources."},
        "argument": {"type": "string", "description": "The argument, or the variable of the template."},
        "value": {"type": "string", "description": "The text typed so far.", "default": ""},
        "context": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["argument"],
    "oneOf": [{"required": ["prompt"]}, {"required": ["template"]}],
    "additionalProperties": False,
}
_COMPLETION: Json = {
    "type": "object",
    "properties": {
        "values": {"type": "array", "items": {"type": "string"}},
        "total": {"type": "integer"},
        "hasMore": {"type": "boolean"},
    },
    "required": ["values"],
}


class About:
    """A factory for the operations on a server itself, such as ``server.ping``."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def fixed(self, capabilities: Json) -> list[AnyOperation]:
        """Return the operations that describe the server, ping it and, if the server can, complete arguments."""
        make = self._maker.fixed
        operations = [
            make("server.about", self._about, "Return the server's description of itself.", output_schema=_ABOUT),
            make("server.ping", self._ping, "Check that the server responds."),
        ]
        if "completions" in capabilities:
            what = "Values for an argument of a prompt, or a variable of a resource template."
            complete = self._complete
            operations.append(
                make("server.complete", complete, what, input_schema=_COMPLETE, output_schema=_COMPLETION)
            )
        return operations

    async def _about(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        live = await (await self._maker.connection_of(context)).open()
        about = {
            "name": self._maker.connection.name,
            "protocolVersion": live.protocol_version,
            "server": live.server,
            "capabilities": live.capabilities,
            "instructions": live.instructions,
        }
        return envelope_of(about, live)

    async def _ping(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        live = await (await self._maker.connection_of(context)).open()
        # The stateless protocol has no ping; its question is as cheap.
        method = "server/discover" if live.modern else "ping"
        _, live = await self._maker.ask(method, {}, context, name="server.ping")
        return envelope_of(None, live)

    async def _complete(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        prompt = input.get("prompt")
        params: Json = {
            "ref": {"type": "ref/prompt", "name": prompt}
            if prompt is not None
            else {"type": "ref/resource", "uri": input["template"]},
            "argument": {"name": input["argument"], "value": input.get("value", "")},
        }
        if input.get("context"):
            params["context"] = {"arguments": input["context"]}
        raw, live = await self._maker.ask("completion/complete", params, context, name="server.complete")
        found = raw.get("completion") if isinstance(raw, dict) else None
        return envelope_of(found if isinstance(found, dict) else {"values": []}, live, meta=meta_of(raw))
