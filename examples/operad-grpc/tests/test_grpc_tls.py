"""TLS: a server with a certificate of our own making, and one that asks for ours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import grpc
import pytest
from loft import serve_loft
from operad_grpc import TLSConfig, from_grpc

from operad import SourceError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="making a certificate needs openssl")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=loft"]
    command += ["-addext", "subjectAltName=DNS:loft.test", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return key, chain


async def test_a_server_is_reached_by_tls_and_only_with_a_certificate_that_is_trusted(
    certificate: tuple[Path, Path],
) -> None:
    key, chain = certificate
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), chain.read_bytes())])
    async with serve_loft(credentials=credentials) as (target, _):
        tls = TLSConfig(root_certificates=chain, server_name="loft.test")
        async with await from_grpc(target, tls=tls, token="t") as session:
            assert len(session.operations) == 5
        with pytest.raises(SourceError):
            await from_grpc(target, tls=True, connect_timeout=5)


async def test_mutual_tls_shows_our_certificate(certificate: tuple[Path, Path]) -> None:
    key, chain = certificate
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), chain.read_bytes())], chain.read_bytes(), require_client_auth=True
    )
    async with serve_loft(credentials=credentials) as (target, _):
        ours = {"private_key": key, "certificate_chain": chain}
        tls = TLSConfig(root_certificates=chain, server_name="loft.test", **ours)
        async with await from_grpc(target, tls=tls) as session:
            assert session.operations
        with pytest.raises(SourceError):
            await from_grpc(target, tls=TLSConfig(root_certificates=chain, server_name="loft.test"))


async def test_a_certificate_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceError, match=r"missing\.pem"):
        await from_grpc("127.0.0.1:1", tls=TLSConfig(root_certificates="missing.pem"))
