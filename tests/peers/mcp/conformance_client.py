"""The client that the MCP conformance suite tests: a registry with the suite's server as its only source.

The tests run it in their own process (``conformance_shim.py``).
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from operad import CallError, ErrorCode, OperadError, OperationRegistry, OperationSpec, load_plugins
from operad_auth import TokenStore
from operad_mcp import MCPAuth

FILLERS: dict[Any, Any] = {"number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


class Browser:
    """A user who approves whatever the authorization server asks."""

    def __init__(self) -> None:
        self._answer: list[str | None] = []

    async def visit(self, url: str) -> None:
        async with httpx2.AsyncClient(timeout=60) as client:
            response = await client.get(url)
        query = parse_qs(urlsplit(response.headers["location"]).query)
        self._answer = [query.get(name, [None])[0] for name in ("code", "state", "iss")]

    async def answer(self) -> list[str | None]:
        return self._answer


async def elicit(params: dict[str, Any]) -> dict[str, Any]:
    content = {
        name: FILLERS.get(field.get("type"), "test")
        for name, field in params.get("requestedSchema", {}).get("properties", {}).items()
        if "default" not in field
    }
    return {"action": "accept", "content": content}


async def sample(params: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "test"}


async def issuer_of(url: str) -> str:
    """The authorization server that the server under test names."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient(timeout=60) as client:
        for path in (parts.path, ""):
            known = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{path}"
            response = await client.get(known)
            if response.status_code == 200:
                return str(response.json()["authorization_servers"][0])
    raise OperadError("the server names no authorization server")


async def exchanged(context: dict[str, Any], issuer: str, resource: str) -> str:
    """Return an assertion of the enterprise's identity provider for a person's token (RFC 8693)."""
    fields = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token": context["idp_id_token"],
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": issuer,
        "resource": resource,
        "client_id": context["idp_client_id"],
    }
    async with httpx2.AsyncClient() as client:
        response = await client.post(context["idp_token_endpoint"], data=fields)
    return str(response.json()["access_token"])


async def auth(url: str, scenario: str, context: dict[str, Any]) -> MCPAuth | None:
    if not scenario.startswith("auth/"):
        return None
    client = {"client_id": context.get("client_id"), "client_secret": context.get("client_secret")}
    if scenario.startswith("auth/client-credentials"):
        key, algorithm = context.get("private_key_pem"), context.get("signing_algorithm", "ES256")
        proof = {"private_key": key, "signing_algorithm": algorithm}
        return MCPAuth(type="client_credentials", **client, issuer=await issuer_of(url), **proof)
    if scenario in ("auth/wif-jwt-bearer", "auth/enterprise-managed-authorization"):
        assertion = context.get("valid_jwt") or partial(exchanged, context)
        return MCPAuth(type="jwt_bearer", **client, issuer=await issuer_of(url), assertion=assertion)
    browser = Browser()
    return MCPAuth(
        type="oauth", **client, issuer=await issuer_of(url) if client["client_secret"] else None,
        client_metadata_url="https://conformance-test.local/client-metadata.json",
        redirect_handler=browser.visit, callback_handler=browser.answer,
        store=TokenStore(tempfile.mkdtemp(), keyring=False),
    )  # fmt: skip


def filled(spec: OperationSpec) -> dict[str, Any]:
    """Arguments for a tool: something of each property's type."""
    properties = spec.input_schema.raw.get("properties", {})
    return {name: FILLERS.get(field.get("type"), "test") for name, field in properties.items()}


async def run(url: str, scenario: str, version: str, context: dict[str, Any]) -> None:
    """Load the server, and call whatever it offers. Raises `OperadError` where the server makes that impossible."""
    mode = "auto" if version >= "2026-07-28" else "legacy"
    # All scenarios run at once: on a slow machine none is to fall back.
    patience = {"connect_timeout": 120, "discover_timeout": 60}
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        await registry.load(
            "mcp", namespace="s", url=url, auth=await auth(url, scenario, context), mode=mode, **patience,
            elicitation=elicit, sampling=sample, roots=["file:///tmp"],
        )  # fmt: skip
        tools = {
            spec.name: filled(spec)
            for spec in registry.specs()
            if spec.metadata.get("mcp", {}).get("kind") == "tool"
        }
        if "json_schema_echo" in tools:
            observed = registry.get_spec("s.json_schema_2020_12_tool")
            assert observed is not None
            tools["json_schema_echo"] = {"schema": observed.input_schema.raw}
        # A null stands for an argument that is left out: a schema that wants a boolean refuses it here already.
        wanted = {
            call["name"]: {name: value for name, value in call["arguments"].items() if value is not None}
            for call in context.get("toolCalls", ())
        }
        if scenario == "sse-retry":
            # The suite's server takes any GET that comes during the call for the resumption of its stream, that
            # of the notifications too, which is opened beside the first listing.
            await asyncio.sleep(1)
        for name, arguments in (wanted or tools).items():
            try:
                await registry.execute(f"s.{name}", arguments, timeout=60)
            except CallError as error:
                if wanted and error.code in (ErrorCode.VALIDATION_ERROR, ErrorCode.OPERATION_NOT_FOUND):
                    raise
        for spec in registry.specs():
            if spec.name in ("resources.list", "prompts.list"):
                await registry.execute(spec.id, {}, timeout=20)
