"""Blocks, configuration files, URI templates, the loader, and what is imported when."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import operad_mcp
from operad import CallError, ConfigError, OperationRegistry, load_plugins
from operad.testing import envelope_schema
from operad_mcp import MCPAuth, MCPClientConfig, MCPClientLoader, from_mcp, map_mcp_content_blocks, mcp_envelope
from operad_mcp.auth.oauth import http_auth
from operad_mcp.client.resources import expand, variables
from operad_mcp.client.tools import object_schema
from operad_mcp.wire.link import imported
from operad_mcp.wire.messages import parse
from plugins.mcp.tests.peers import HOSTILE, TABLES, plain, program, table

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
kinds = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "other"])
fields = st.sampled_from(["text", "data", "mimeType", "uri", "name", "resource", "annotations", "_meta", "size"])
blocks = st.builds(
    lambda kind, rest: {"type": kind, **rest}, kinds, st.dictionaries(fields | st.text(), json_values, max_size=6)
)


@pytest.fixture(scope="module")
def registered() -> Any:
    return load_plugins(only=["mcp"]).envelope_kinds


@settings(deadline=None)  # the first example imports cattrs
@given(content=st.lists(blocks | json_values, max_size=4), structured=json_values)
def test_an_envelope_with_any_content_survives_the_wire(registered: Any, content: Any, structured: Any) -> None:
    envelope = mcp_envelope(structured, content=content, structured_content=structured, meta={"a": 1})
    wire = json.loads(json.dumps(envelope.to_wire()))
    assert registered.from_wire(wire) == envelope
    for block in envelope.meta.content:
        _ = block.annotations, block.meta, repr(block)


@table("blocks")
def test_blocks_are_typed_and_keep_what_the_server_sent(sent: Any, expected: Any) -> None:
    (block,) = map_mcp_content_blocks([sent])
    assert block.to_wire() == sent
    assert {name: getattr(block, name) for name in expected} == expected


def test_annotations_of_a_block_are_typed() -> None:
    sent = {"audience": ["user"], "priority": 1, "lastModified": "x"}
    (block,) = map_mcp_content_blocks([{"type": "text", "text": "a", "annotations": sent}])
    told = block.annotations
    assert told is not None
    assert (told.audience, told.priority, told.last_modified) == (("user",), 1, "x")


def test_blocks_of_the_sdk_and_one_alone_are_taken_too() -> None:
    text = types.TextContent(type="text", text="a")
    image = types.ImageContent(type="image", data="", mime_type="b/c")
    sent: list[Any] = [{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": "b/c"}]
    assert [block.to_wire() for block in map_mcp_content_blocks([text, image])] == sent
    assert [block.to_wire() for block in map_mcp_content_blocks(sent[1])] == sent[1:]
    assert map_mcp_content_blocks(None) == []


def test_an_envelope_fits_the_schema_of_envelopes(registered: Any) -> None:
    envelope = mcp_envelope(1, content=[{"type": "text", "text": "a"}, {"odd": 1}], server={"name": "n"})
    jsonschema.validate(envelope.to_wire(), envelope_schema(registered))


@settings(deadline=None)  # the first example imports the SDK
@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_line_breaks_the_parser(line: bytes) -> None:
    parse(line)


@given(json_values)
def test_any_input_schema_becomes_one_of_an_object(schema: Any) -> None:
    assert object_schema(schema)["type"] == "object"


@pytest.mark.parametrize(("template", "uri"), TABLES["expansions"])
def test_templates_expand_as_the_rfc_says(template: str, uri: str) -> None:
    """The values and expansions of the examples in RFC 6570, section 3.2 and appendix."""
    assert expand(template, TABLES["values"]) == uri


@given(st.text())
def test_a_simple_value_stays_within_its_segment(value: str) -> None:
    try:
        uri = expand("a://b/{v}/c", {"v": value})
    except (CallError, UnicodeEncodeError):
        assert value in (".", "..") or any("\ud800" <= c <= "\udfff" for c in value)  # either is right
    else:
        assert uri.count("/") == 4
        assert not set("?#") & set(uri)


def test_the_variables_of_a_template_are_its_input() -> None:
    assert variables("a://{x}/{+y}{?z,w*}") == {"x": True, "y": True, "z": False, "w": False}
    with pytest.raises(ValueError, match="expected a name for each variable"):
        variables("a://{}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *TABLES["refused_configurations"],
        (
            {"server": operad_mcp.to_mcp(OperationRegistry())},
            r"such as to_mcp\(registry\)\.server\(\), got MCPServing",
        ),
    ],
)
def test_a_configuration_that_says_too_little_or_too_much_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MCPClientConfig(**{**options, "auth": MCPAuth(**options["auth"]) if "auth" in options else None})


def test_no_secret_is_in_a_repr_or_in_a_name_of_the_server() -> None:
    url = "https://user:hush@example.invalid:1/mcp?key=hush"
    config = MCPClientConfig(url=url, headers={"k": "hush"}, auth=MCPAuth(token="hush"))
    assert "hush" not in repr(config)
    assert config.where == "https://example.invalid:1/mcp"
    assert "hush" not in repr(MCPClientConfig(command="x", env={"K": "hush"}))


async def test_the_loader_holds_clients_by_name_and_closes_them() -> None:
    loader, good = MCPClientLoader(), MCPClientConfig(**program())
    servers = {"a": good, "b": good, "c": MCPClientConfig(command="no-such-program")}
    loaded = await loader.load(servers)
    try:
        assert [wrapper.name for wrapper in loaded] == ["a", "b"]
        assert set(loader.failures) == {"c"}
        assert len(loader.get_all_operations()) == 2 * len(loaded[0].tools)
        with pytest.raises(ExceptionGroup):
            await loader.load({"d": good, "e": servers["c"]}, strict=True)
        assert [loader.get_client(name) for name in "abcd"] == [*loaded, None, None]
    finally:
        await loader.close_all()
    assert loader.get_all_wrappers() == []


async def test_from_mcp_gives_operations_that_a_registry_takes() -> None:
    wrapper = await from_mcp("h", **program())
    async with plain() as registry, wrapper:
        for operation in wrapper.operations:
            registry.register(operation)
        assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}
    with pytest.raises(CallError, match="closed"):
        await wrapper.client.open()
    await operad_mcp.close_mcp_client(wrapper)


async def test_any_request_of_the_protocol_returns_the_result_unchanged() -> None:
    async with await from_mcp("h", **program()) as wrapper:
        result, _ = await wrapper.client.request("tools/call", {"name": "vendor_fields", "arguments": {}})
    assert result["x"] == 2


def printed(code: str, *arguments: str) -> str:
    """What a program prints, in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout


def test_neither_the_package_nor_its_plugin_nor_load_plugins_imports_the_sdk() -> None:
    code = (
        "import sys, operad, operad_mcp, operad_mcp.plugin; operad.load_plugins(only=['mcp']);"
        "print(sorted({'mcp', 'mcp_types', 'pydantic', 'httpx2', 'anyio', 'jsonschema'} & {*sys.modules}))"
    )
    assert printed(code) == "[]\n"


async def test_an_import_goes_on_without_one_of_those_who_wait_and_one_that_failed_is_tried_again() -> None:
    loading = [asyncio.create_task(imported("operad_mcp.wire.exchange")) for _ in range(5)]
    await asyncio.sleep(0)
    loading[0].cancel()
    got = await asyncio.gather(*loading, return_exceptions=True)
    assert {each.__name__ for each in got[1:]} == {"operad_mcp.wire.exchange"}
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such"):
            await imported("operad_mcp.no_such")


async def test_client_credentials_are_for_the_issuer_that_is_named() -> None:
    auth = MCPAuth(type="client_credentials", client_id="i", client_secret="s", issuer="https://as.invalid")
    made = http_auth(MCPClientConfig(url="http://127.0.0.1:9/mcp", auth=auth), "s")
    assert type(made).__name__ == "ClientCredentialsOAuthProvider"
    assert "'s'" not in repr(auth)
    given = MCPAuth(type="provider", provider=made)
    assert http_auth(MCPClientConfig(url="http://127.0.0.1:9/mcp", auth=given), "s") is made


BROKEN = """
import asyncio, sys
from operad import OperationRegistry, SourceError, load_plugins
LOGS_IN = {"url": "http://127.0.0.1:9/mcp", "auth": {"type": "oauth", "redirect_uri": "http://127.0.0.1:9/"}}
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp" or name.startswith("mcp."):
            raise TypeError("two versions do not fit")
async def main():
    sys.meta_path.insert(0, Broken())
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        try:
            await asyncio.wait_for(registry.load("mcp", namespace="h", **LOGS_IN), 20)
        except SourceError as error:
            print(error)
asyncio.run(main())
"""


def test_an_installation_of_the_sdk_that_is_broken_in_an_unusual_way_is_told() -> None:
    assert "two versions do not fit" in printed(BROKEN)


LIGHT = """
import asyncio, sys
from operad import OperationRegistry, load_plugins
async def main():
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        await registry.load("mcp", namespace="h", command=sys.executable, args=[sys.argv[1]])
        await registry.execute("h.count", {})
        print(sorted({"mcp", "mcp_types", "pydantic", "anyio", "httpx2", "aiohttp", "starlette"} & {*sys.modules}))
asyncio.run(main())
"""


def test_a_server_that_is_a_program_is_called_without_the_sdk_and_without_an_http_client() -> None:
    assert printed(LIGHT, str(HOSTILE)) == "[]\n"
