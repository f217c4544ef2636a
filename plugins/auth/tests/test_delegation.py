"""A delegation says for whom one call is made: signed, for one operation, for a minute, and once."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    ConfigError,
    Identity,
    InProcessTransport,
    OperationRegistry,
    operation,
)
from operad.transports import Delivery
from operad_auth import DelegationSigner, JWTDelegation

jwt = pytest.importorskip("jwt")
TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
ANN = Identity("ann", ["read", "write"], {"doc:1": ["edit"]})


@pytest.fixture
def keys(server: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return server.key_pair("k1")


def verifier(keys: Any, **options: Any) -> JWTDelegation:
    return JWTDelegation(keys={"gateway": {"keys": [keys[1]]}}, **options)


def request(token: Any, operation_id: str = "docs.edit", request_id: str = "r1") -> dict[str, Any]:
    return {"requestId": request_id, "operationId": operation_id, "input": None, "delegation": token}


async def test_a_signed_word_is_the_identity_that_it_names(keys: Any) -> None:
    private, _ = keys
    sign = DelegationSigner(private, "gateway")
    verify = verifier(keys)
    assert await verify(request(sign("docs.edit", ANN)), Delivery("p")) == ANN
    assert await verify({"operationId": "docs.edit"}, Delivery("p")) is None
    claims = jwt.decode(sign("docs.edit", ANN), options={"verify_signature": False})
    assert claims.keys() == {"iss", "sub", "scope", "resources", "aud", "iat", "exp", "jti"}
    assert claims["exp"] - claims["iat"] == 30
    assert private["d"] not in repr(sign)


async def test_it_counts_once_and_for_the_same_request_that_the_transport_brings_again(keys: Any) -> None:
    private, public = keys
    token = DelegationSigner(private, "gateway")("docs.edit", ANN)
    verify = JWTDelegation(keys={"keys": [public]}, issuers=["gateway"])
    assert await verify(request(token), Delivery("p"))
    assert await verify(request(token), Delivery("p", redelivered=True)) == ANN
    for payload, delivery in [
        (request(token), Delivery("p")),
        (request(token, request_id="r2"), Delivery("p", redelivered=True)),
        (request(token), Delivery("q", redelivered=True)),
    ]:
        with pytest.raises(CallError, match="used before"):
            await verify(payload, delivery)


@pytest.mark.parametrize(("claims", "reason"), TABLES["delegations that do not hold"])
async def test_claims_that_do_not_hold_are_refused_in_words(
    keys: Any, claims: dict[str, Any], reason: str
) -> None:
    now = int(time.time())
    payload = {"iss": "gateway", "sub": "ann", "aud": "docs.edit", "iat": 0, "exp": 30, "jti": uuid.uuid4().hex}
    payload |= claims
    moved = {name: value + now for name, value in payload.items() if name in ("iat", "exp") and value is not None}
    kept = {name: value for name, value in (payload | moved).items() if value is not None}
    key = jwt.PyJWK(keys[0])
    token = jwt.PyJWS().encode(json.dumps(kept).encode(), key.key, "ES256", headers={"kid": "k1"})
    with pytest.raises(CallError, match=reason) as caught:
        await verifier(keys)(request(token), Delivery("p"))
    assert caught.value.code == "ACCESS_DENIED"
    assert token not in str(caught.value)


@pytest.mark.parametrize("token", [7, "", "a.b.c", "x" * 20_000, "e30.e30.e30", [], {"iss": "gateway"}])
async def test_what_is_no_delegation_is_refused(keys: Any, token: Any) -> None:
    with pytest.raises(CallError, match="the delegation is refused"):
        await verifier(keys)(request(token), Delivery("p"))


async def test_a_key_speaks_for_its_own_issuer_only(server: Any, keys: Any) -> None:
    other_private, other_public = server.key_pair("k1")
    verify = JWTDelegation(keys={"gateway": {"keys": [keys[1]]}, "other": {"keys": [other_public]}})
    assert await verify(request(DelegationSigner(other_private, "other")("docs.edit", ANN)), Delivery("p")) == ANN
    with pytest.raises(CallError, match="not made with the issuer's key"):
        await verify(request(DelegationSigner(other_private, "gateway")("docs.edit", ANN)), Delivery("p"))


async def test_an_access_token_of_the_same_key_is_no_delegation(keys: Any) -> None:
    now = int(time.time())
    claims = {"iss": "gateway", "sub": "ann", "aud": "docs.edit", "iat": now, "exp": now + 30, "jti": "j"}
    token = jwt.encode(claims, jwt.PyJWK(keys[0]).key, "ES256", headers={"typ": "at+jwt", "kid": "k1"})
    with pytest.raises(CallError, match="another kind of token"):
        await verifier(keys)(request(token), Delivery("p"))


async def test_what_is_remembered_is_bounded_and_forgotten_when_it_has_expired(keys: Any) -> None:
    now = [time.time()]
    verify = verifier(keys, capacity=2, clock=lambda: now[0])
    sign = DelegationSigner(keys[0], "gateway")
    for number in range(2):
        await verify(request(sign("docs.edit", ANN), request_id=str(number)), Delivery("p"))
    with pytest.raises(CallError) as caught:
        await verify(request(sign("docs.edit", ANN)), Delivery("p"))
    assert caught.value.code == "OVERLOADED"
    now[0] += 60
    assert await verify(request(sign("docs.edit", ANN)), Delivery("p")) == ANN


async def test_a_worker_runs_for_whom_the_gateway_signed_and_refuses_the_rest(keys: Any) -> None:
    transport = InProcessTransport()

    @operation(namespace="docs", access_control=AccessControl(required_scopes=["write"]))
    async def edit(context: Any) -> str:
        return str(context.identity.id)

    answers, outcomes = asyncio.Queue[Any](), []
    async with OperationRegistry() as registry, asyncio.timeout(60):
        registry.register(edit)
        async with CallHandler(registry, transport, identity=verifier(keys)):
            link = await transport.open(lambda event, _: answers.put_nowait(event), lambda *_: None)
            sign = DelegationSigner(keys[0], "gateway")
            reader = Identity("bob", ["read"])
            for token in (sign("docs.edit", ANN), sign("docs.edit", reader), sign("docs.other", ANN), None):
                payload = {"requestId": uuid.uuid4().hex, "operationId": "docs.edit", "input": {}}
                payload |= {"replyTo": link.inbox, "timeoutMs": 20_000} | ({"delegation": token} if token else {})
                # What the caller says of itself counts for nothing.
                payload["identity"] = {"id": "root", "scopes": ["write"]}
                await link.send("op:docs.edit", {"type": "call.requested", "id": "", "payload": payload})
                answer = (await answers.get())["payload"]
                outcomes.append(answer.get("code") or answer["output"].data)
            await link.close()
    assert answers.empty()
    assert outcomes == ["ann", "ACCESS_DENIED", "ACCESS_DENIED", "ACCESS_DENIED"]


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
async def test_a_key_may_be_a_jwk_or_a_pem_as_text_or_in_a_file(
    server: Any, tmp_path: Path, algorithm: str
) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private, public = server.key_pair("k1", algorithm)
    pem = jwt.PyJWK(private).key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (tmp_path / "key.pem").write_text(pem)
    (tmp_path / "key.json").write_text(json.dumps(private))
    verify = verifier((private, public))
    for key in (private, json.dumps(private), pem, tmp_path / "key.pem", str(tmp_path / "key.json")):
        token = DelegationSigner(key, "gateway", key_id="k1")("docs.edit", ANN)
        assert await verify(request(token), Delivery("p")) == ANN


def test_keys_that_cannot_be_used_are_refused_and_never_quoted(server: Any, keys: Any, tmp_path: Path) -> None:
    private, public = keys
    for key, complaint in [
        (public, "got a public key"),
        ({"kty": "EC", "d": "s3cret"}, "not a usable JWK or PEM"),
        ("-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----", "not a usable JWK or PEM"),
        (tmp_path / "absent", "No such file"),
    ]:
        with pytest.raises(ConfigError, match=complaint) as caught:
            DelegationSigner(key, "gateway")
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match="at most 60 s"):
        DelegationSigner(private, "gateway", lifetime=61)
    for arguments, complaint in [
        ({"keys": {"keys": [public]}}, "expected a trusted issuer"),
        ({"keys": {}}, "expected a trusted issuer"),
        ({"keys": {"a": {"keys": [public]}}, "issuers": ["b"]}, 'keys for the issuer "b"'),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            JWTDelegation(**arguments)
