"""A JSON Web Token lets in whom the issuer named, for this service, for as long as it said; nothing else does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError, Identity
from operad_auth import Credentials, FetchResponse, JWTAuthenticator, JWTOptions, authenticator_from, default_fetch

jwt = pytest.importorskip("jwt")
TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


def bearer(token: str) -> Credentials:
    return Credentials("bearer", token, {}, "127.0.0.1")


def b64(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def door(server: Any, **options: Any) -> JWTAuthenticator:
    return JWTAuthenticator(server.issuer, "operad", server.issuer + "/jwks", **options)


async def test_a_token_of_the_issuer_is_its_subject_with_scopes_and_grants(server: Any) -> None:
    authenticate = door(server)
    token = server.sign(scope="read write", scp=["admin"], resources={"doc:1": ["edit"]}, aud=["x", "operad"])
    expected = Identity("ann", ["read", "write", "admin"], {"doc:1": ["edit"]})
    assert await authenticate(bearer(token)) == expected
    assert await authenticate(bearer(token)) == expected
    assert server.seen["jwks"] == 1


async def test_the_keys_are_found_by_the_issuers_metadata(server: Any) -> None:
    authenticate = JWTAuthenticator(server.issuer, "operad")
    assert await authenticate(bearer(server.sign())) == Identity("ann", ["read"])


@pytest.mark.parametrize(
    ("claims", "reason"), [*TABLES["claims that do not hold"], ({"exp": float("inf")}, "it cannot be read")]
)
async def test_claims_that_do_not_hold_let_nobody_in_and_the_log_says_why(
    server: Any, caplog: pytest.LogCaptureFixture, claims: dict[str, Any], reason: str
) -> None:
    payload = {"iss": server.issuer, "aud": "operad", "sub": "ann", "exp": 4_000_000_000, **claims}
    kept = {name: value for name, value in payload.items() if value is not None}
    key = jwt.PyJWK(server.private)
    token = jwt.PyJWS().encode(json.dumps(kept).encode(), key.key, "ES256", headers={"kid": server.kid})
    with caplog.at_level(logging.INFO, "operad.auth"):
        assert await door(server)(bearer(token)) is None
    assert reason in caplog.text
    assert token not in caplog.text
    assert token.split(".")[1] not in caplog.text


async def test_clocks_may_be_apart_by_the_leeway(server: Any) -> None:
    now = int(time.time())
    token = server.sign(exp=now - 10, iat=now + 10)
    assert await door(server)(bearer(token)) == Identity("ann", ["read"])
    assert await door(server, leeway=5)(bearer(token)) is None


async def test_a_signature_by_another_key_or_none_is_refused(server: Any) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    authenticate = door(server)
    good = server.sign()
    head, body, signature = good.split(".")
    other = type(server)()
    other.rotate(server.kid)
    unsigned = b64({"alg": "none", "kid": server.kid}) + f".{body}."
    # The public key as the secret of an HMAC (RFC 8725, 2.1).
    pem = jwt.PyJWK(server.public).key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused = f"{b64({'alg': 'HS256', 'kid': server.kid})}.{body}"
    confused += "." + b64(hmac.digest(pem, confused.encode(), hashlib.sha256))
    bad = [
        server.sign(other.private),
        unsigned,
        unsigned.replace("none", "None"),
        confused,
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{b64({'sub': 'root'})}.{signature}",
        server.sign(headers={"typ": "delegation+jwt"}),
        server.sign(headers={"crit": ["x"], "x": 1}),
        server.sign(headers={"jku": "https://evil.example/jwks", "kid": "evil"}),
    ]
    assert await authenticate(bearer(good)) is not None
    assert [await authenticate(bearer(token)) for token in bad] == [None] * len(bad)
    assert [await door(server, algorithms=["HS256", "ES256"])(bearer(confused))] == [None]


@pytest.mark.parametrize(
    "token",
    ["", "a", "a.b", "...", "a.b.c", "é.é.é", "\ud800.a.b", "e30.e30.e30", "[].[].[]", "x" * 20_000, "W10.W10.W10"]
    + [f"{b64(header)}.e30.e30" for header in ({"alg": 7}, {"alg": ["ES256"]}, {"alg": "ES256", "kid": 7}, [1])]
    + [f"{b64(b'[' * 9_000)}.e30.e30"],
)
async def test_hostile_bytes_let_nobody_in(server: Any, token: str) -> None:
    assert await door(server)(bearer(token)) is None


async def test_a_key_that_is_not_there_yet_is_fetched_but_not_for_every_invented_one(server: Any) -> None:
    authenticate = door(server, cooldown=0.0)
    assert await authenticate(bearer(server.sign()))
    server.rotate()
    assert await authenticate(bearer(server.sign()))
    assert server.seen["jwks"] == 2
    calm = door(server, cooldown=60.0)
    before = server.seen["jwks"]
    assert await calm(bearer(server.sign()))
    for number in range(50):
        assert await calm(bearer(server.sign(headers={"kid": f"invented-{number}"}))) is None
    assert server.seen["jwks"] == before + 1


async def test_many_callers_at_once_fetch_the_keys_once_and_one_that_leaves_stops_nobody(server: Any) -> None:
    authenticate = door(server)
    calls = [asyncio.create_task(authenticate(bearer(server.sign()))) for _ in range(20)]
    await asyncio.sleep(0)
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [Identity("ann", ["read"])] * 19
    assert server.seen["jwks"] == 1


async def test_an_issuer_that_is_away_is_no_wrong_token(server: Any) -> None:
    answers = [FetchResponse(503), FetchResponse(200, {}, b"<html>"), None]

    async def fetch(method: str, url: str, **_: Any) -> FetchResponse:
        return answers.pop(0) or await default_fetch(method, url)

    authenticate = door(server, fetch=fetch, cooldown=0.0)
    for reason in ("HTTP 503", "expected a JSON Web Key Set"):
        with pytest.raises(CallError, match=reason) as caught:
            await authenticate(bearer(server.sign()))
        assert caught.value.code == "UNAVAILABLE"
    assert await authenticate(bearer(server.sign()))


async def test_known_keys_count_while_the_issuer_is_away_but_not_for_ever(server: Any) -> None:
    from operad_auth.keys import KeySet

    now, away = [0.0], [False]

    async def fetch(method: str, url: str, **_: Any) -> FetchResponse:
        return FetchResponse(503) if away[0] else await default_fetch(method, url)

    keys = KeySet(server.issuer + "/jwks", fetch=fetch, clock=lambda: now[0])
    assert await keys.find(server.kid, "ES256")
    away[0] = True
    now[0] = 3_600.0
    assert await keys.find(server.kid, "ES256")
    now[0] = 100_000.0
    with pytest.raises(CallError, match="HTTP 503"):
        await keys.find(server.kid, "ES256")


async def test_keys_come_from_a_file_too_and_a_changed_file_counts(server: Any, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [server.public]}))
    options = JWTOptions(issuer=server.issuer, audience="operad", jwks="keys.json", leeway=0)
    authenticate = authenticator_from(jwt=options, base_dir=tmp_path)
    assert authenticate is not None
    assert await authenticate(bearer(server.sign()))
    written = JWTAuthenticator(server.issuer, "operad", {"keys": [server.private]})
    assert await written(bearer(server.sign()))
    server.rotate()
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [server.public]}))
    now = JWTAuthenticator(server.issuer, "operad", tmp_path / "keys.json", cooldown=0.0)
    assert await now(bearer(server.sign()))
    assert await written(bearer(server.sign())) is None


@pytest.mark.parametrize("content", [b'\xff{"keys": []}', b"[" * 100_000, b"keys"])
async def test_a_file_that_holds_no_keys_cannot_be_asked_now(server: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(content)
    with pytest.raises(CallError, match="expected a JSON Web Key Set") as caught:
        await JWTAuthenticator(server.issuer, "operad", tmp_path / "keys.json")(bearer(server.sign()))
    assert caught.value.code == "UNAVAILABLE"


@pytest.mark.parametrize("algorithm", ["RS256", "EdDSA"])
async def test_other_kinds_of_keys_sign_as_well(server: Any, algorithm: str) -> None:
    private, public = server.key_pair("k", algorithm)
    authenticate = JWTAuthenticator(server.issuer, "operad", {"keys": [{"kty": "XX"}, server.public, public]})
    assert await authenticate(bearer(server.sign(private)))
    assert await authenticate(bearer(server.sign({**private, "kid": "other"}))) is None


async def test_a_token_without_a_key_id_is_tried_with_every_key_that_fits(server: Any) -> None:
    other = type(server)()
    keys = {"keys": [other.public, server.public]}
    claims = {"iss": server.issuer, "aud": "operad", "sub": "ann", "exp": int(time.time()) + 60}
    token = jwt.encode(claims, jwt.PyJWK(server.private).key, "ES256")
    assert await JWTAuthenticator(server.issuer, "operad", keys)(bearer(token)) == Identity("ann")


async def test_a_key_for_encryption_signs_nothing(server: Any) -> None:
    for change in ({"use": "enc"}, {"key_ops": ["encrypt"]}, {"alg": "ES384"}):
        authenticate = JWTAuthenticator(server.issuer, "operad", {"keys": [{**server.public, **change}]})
        assert await authenticate(bearer(server.sign())) is None


async def test_ids_and_scopes_may_be_in_other_claims(server: Any) -> None:
    authenticate = door(server, id_claim="client_id", id_prefix="corp/", scope_claims=["permissions"])
    token = server.sign(client_id="robot", permissions=["a", 7, "b"])
    assert await authenticate(bearer(token)) == Identity("corp/robot", ["a", "b"])


@pytest.mark.parametrize(("arguments", "complaint"), TABLES["arguments that let anybody in"])
def test_an_authenticator_that_could_let_anybody_in_is_not_made(arguments: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        JWTAuthenticator(*arguments)


@pytest.mark.parametrize("algorithms", [["none"], ["RS257"], [], "RS256"])
def test_an_algorithm_that_nobody_knows_is_refused(algorithms: Any) -> None:
    with pytest.raises(ConfigError, match="algorithm"):
        JWTAuthenticator("https://id.example", "operad", algorithms=algorithms)


async def test_the_shared_secret_of_a_published_set_proves_nothing(server: Any) -> None:
    server.public = {"kty": "oct", "k": b64(b"x" * 32), "kid": "k"}
    claims = {"iss": server.issuer, "aud": "operad", "sub": "ann", "exp": int(time.time()) + 60}
    token = jwt.encode(claims, b"x" * 32, "HS256")
    with pytest.raises(CallError, match="at least one usable key"):
        await door(server, algorithms=["HS256"])(bearer(token))
    listed = JWTAuthenticator(server.issuer, "operad", {"keys": [server.public]}, algorithms=["HS256"])
    assert await listed(bearer(token)) == Identity("ann")
