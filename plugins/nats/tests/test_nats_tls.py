"""TLS and credentials of a NATS server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operad.plugin import ConfigError, Event, LinkDownError
from operad_nats import NATSTransport
from operad_nats.plugin import create
from operad_nats.testing import NATSServer
from plugins.calls.tests.links import until
from plugins.nats.tests.fake_server import FakeServer

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def certificate(new_server: type[NATSServer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a certificate for 127.0.0.1 that nobody else trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*command, *names], cwd=folder, check=True, capture_output=True)
    return folder


def demanding_tls(certificate: Path, more: str = "") -> NATSServer:
    """A server whose handshake may take longer than its usual 2 s: this machine may be busy."""
    cert, key, config = (certificate / name for name in ("cert.pem", "key.pem", "server.conf"))
    config.write_text(f'tls {{ cert_file: "{cert}", key_file: "{key}", timeout: 60, {more} }}\n')
    return NATSServer(["-c", str(config)])


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[NATSServer]:
    with demanding_tls(certificate) as server:
        yield server


async def round_trip(transport: NATSTransport) -> list[Event]:
    seen: list[Event] = []
    link = await transport.open(lambda event, delivery: seen.append(event), lambda state, epoch: None)
    try:
        await link.send(link.inbox, {"type": "call.aborted", "id": "", "payload": {"requestId": "r"}})
        await link.drain(5)
    finally:
        await link.close()
    return seen


async def test_a_trusted_server_is_spoken_to_over_tls(tls_server: NATSServer, certificate: Path) -> None:
    url = tls_server.url.replace("nats:", "tls+nats:")
    for trusted in (str(certificate / "cert.pem"), ssl.create_default_context(cafile=certificate / "cert.pem")):
        assert len(await round_trip(NATSTransport(servers=url, tls=trusted))) == 1


async def test_a_server_that_nobody_vouches_for_is_refused(tls_server: NATSServer) -> None:
    for scheme in ("nats:", "tls+nats:"):  # the server demands TLS, so it is checked either way
        with pytest.raises(LinkDownError, match="(?i)certificate"):
            await round_trip(NATSTransport(servers=tls_server.url.replace("nats:", scheme)))


async def test_certificates_may_be_named_as_files_that_trust_and_that_are_shown(certificate: Path) -> None:
    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    with demanding_tls(certificate, f'ca_file: "{cert}", verify: true') as server:
        url = server.url.replace("nats:", "tls+nats:")
        files = {"tls_ca": cert, "tls_cert": cert, "tls_key": key}
        assert len(await round_trip(create(url, **files))) == 1
        with pytest.raises(LinkDownError):
            await round_trip(create(url, tls_ca=cert))
    with pytest.raises(ConfigError, match=r"tls_cert: expected .*none\.pem: "):
        await round_trip(create(url, tls_ca=cert, tls_cert="none.pem"))
    with pytest.raises(ConfigError, match="either tls, or tls_ca"):
        create(url, tls=cert, tls_ca=cert)


@pytest.mark.parametrize(
    "given", [{}, {"user": "u", "password": "secret"}, {"token": "secret"}, {"nkey_seed": "seed"}, {"at": "u:secret@"},
              {"at": "secret@"}, {"user": "u"}],
)  # fmt: skip
async def test_a_server_without_tls_gets_nothing_if_the_url_requires_tls(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(given)
    if "nkey_seed" in given:
        given["nkey_seed"] = str(tmp_path / "seed")
        (tmp_path / "seed").write_bytes(b"seed")
        pair = SimpleNamespace(public_key=b"U", sign=lambda nonce: b"signed", wipe=lambda: None)
        monkeypatch.setitem(sys.modules, "nkeys", SimpleNamespace(from_seed=lambda seed: pair))
    async with FakeServer(auth_required=True, nonce="n") as server:
        url = server.url.replace("nats://", "tls+nats://" + given.pop("at", ""))
        with pytest.raises(LinkDownError, match="requires TLS, but the server does not offer it, .*; enable TLS"):
            await round_trip(NATSTransport(servers=url, **given))
    assert server.read == [b""]


async def test_a_server_that_offers_tls_no_longer_gets_nothing_when_a_link_connects_again(
    tls_server: NATSServer, certificate: Path
) -> None:
    tls = str(certificate / "cert.pem")
    url = tls_server.url.replace("nats:", "tls+nats:")
    transport = NATSTransport(servers=url, tls=tls, user="u", password="secret", reconnect_wait=0.02)
    states: list[str] = []
    link = await transport.open(lambda *_: None, lambda state, epoch: states.append(state))
    tls_server.kill()
    async with FakeServer(tls_server.port) as server:
        await until(lambda: len(server.read) >= 3)
        await link.close()
    assert states == ["up", "down"]
    assert set(server.read) == {b""}


@pytest.mark.parametrize(
    ("option", "wrong", "expected"),
    [("durable", "false", "a boolean"), ("max_payload", "1", "an integer"), ("ping_interval", "1s", "a number")],
)
def test_an_option_of_another_type_is_a_configuration_error(option: str, wrong: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"(?=.*{option}).*expected {expected}, got a string"):
        create("nats://h", **{option: wrong})
