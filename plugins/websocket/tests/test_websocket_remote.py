"""A configuration that names a hub: what peers serve there are operations here."""

import logging

import pytest

from operad import CallHandler, ErrorCode, Identity, OperationContext, OperationRegistry, operation
from operad_websocket import Hub, WebSocketTransport, bearer_tokens
from plugins.websocket.tests.kit import TABLES, add, code_of, registry_of, reset, until

TOKENS = {"worker-token": Identity("worker"), "gateway-token": Identity("gateway", ["admin"])}


@operation(namespace="math")
async def whoami(context: OperationContext) -> str:
    return context.identity.id


@pytest.fixture
async def hub():
    async with Hub(bearer_tokens(TOKENS), port=0) as hub:
        yield hub


@pytest.fixture
async def worker(hub):
    async with CallHandler(registry_of(add, reset, whoami), WebSocketTransport(hub.url, token="worker-token")):
        yield


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """The registry of a configuration that has the given sources."""
    monkeypatch.setenv("GATEWAY_TOKEN", "gateway-token")

    def configured(text, **options):
        path = tmp_path / "operad.toml"
        path.write_text(text)
        return OperationRegistry.from_config(path, **options)

    return configured


def far(hub, more=""):
    return (
        f'[sources.far]\ntype = "remote"\nurl = "{hub.url}"\n'
        f'options = {{ token = "${{GATEWAY_TOKEN}}" }}\nwait = 60\n{more}\n'
    )


async def test_a_configured_hub_brings_what_its_peers_serve(hub, worker, configured):
    """Operations stand under the source's name, and calls go out as whom the token stands for."""
    async with configured(far(hub), strict=True) as registry:
        assert [spec.id for spec in registry.specs()] == ["far.math.add", "far.math.reset", "far.math.whoami"]
        assert (await registry.execute("far.math.add", {"a": 1, "b": 2})).data == 3
        assert (await registry.execute("far.math.whoami", {})).data == "gateway"
    await until(lambda: hub.connections == 1)  # the worker's: the registry has closed its own


async def test_an_empty_namespace_keeps_the_ids_of_the_peers(hub, worker, configured):
    async with configured(far(hub, 'namespace = ""'), strict=True) as registry:
        assert (await registry.execute("math.add", {"a": 1, "b": 2})).data == 3


async def test_the_requirements_of_peers_and_of_the_source_hold_here(hub, worker, configured):
    """The hub lets this process do what not all of its callers may: each is checked here, too."""
    async with configured(far(hub), strict=True) as registry:
        eve = OperationContext(identity=Identity("eve"))
        assert await code_of(registry.execute("far.math.reset", {}, eve)) == ErrorCode.ACCESS_DENIED
        admin = OperationContext(identity=Identity("ann", ["admin"]))
        assert (await registry.execute("far.math.reset", {}, admin)).data == "done"
    async with configured(far(hub, 'access = { required_scopes = ["far"] }'), strict=True) as registry:
        assert await code_of(registry.execute("far.math.add", {"a": 1, "b": 2})) == ErrorCode.ACCESS_DENIED


async def test_peers_that_come_later_are_followed(hub, configured):
    """A hub at which nobody serves yet is no error."""
    async with configured(far(hub), strict=True) as registry:
        assert len(registry) == 0
        async with CallHandler(registry_of(add), WebSocketTransport(hub.url, token="worker-token")):
            await until(lambda: "far.math.add" in registry)
            assert (await registry.execute("far.math.add", {"a": 1, "b": 2})).data == 3


async def test_describe_brings_the_schemas_that_the_listing_left_out(hub, worker, configured):
    """A registry asks its source for what is missing, once; what is complete, or nowhere, it answers at once."""
    async with configured(far(hub), strict=True) as registry:
        assert registry.get_spec("far.math.add").input_schema.is_unknown
        spec = await registry.describe("far.math.add")
        assert spec.input_schema.raw["required"] == ["a", "b"]
        assert await registry.describe("far.math.add") is spec
        assert registry.get_spec("far.math.reset").input_schema.is_unknown
        assert await registry.describe("far.math.nothing") is None
        registry.register(add)
        assert (await registry.describe("math.add")) is registry.get_spec("math.add")


@pytest.mark.parametrize(("line", "complaint"), TABLES["sources"])
async def test_what_cannot_be_reached_is_reported_and_the_others_load(hub, worker, configured, line, complaint):
    text = f'[sources.far]\ntype = "remote"\n{line}\n' + far(hub).replace("far", "near", 1)
    async with configured(text) as registry:
        (failure,) = registry.failures
        assert failure.name == "far"
        assert complaint in str(failure.error)
        await until(lambda: "near.math.add" in registry)  # at once, unless the worker is slow to answer


async def test_no_message_holds_the_token(hub, configured, caplog):
    """A hub that refuses the token says so without it."""
    text = far(hub).replace("${GATEWAY_TOKEN}", "s3cret-0f-nobody")
    with caplog.at_level(logging.DEBUG):
        async with configured(text) as registry:
            (failure,) = registry.failures
    assert "401" in str(failure.error)
    assert "s3cret" not in repr(failure) + caplog.text


async def test_a_missing_transport_names_the_distribution_to_install(hub, configured):
    async with configured(far(hub) + '[plugins]\nonly = ["calls"]\n') as registry:
        (failure,) = registry.failures
        assert "operad-websocket" in str(failure.error)
