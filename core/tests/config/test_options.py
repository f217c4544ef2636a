"""Options of transports, checked by name and by type in one place."""

from __future__ import annotations

import ssl
from pathlib import Path

import attrs
import pytest
import trustme

from operad import ConfigError, OperationRegistry
from operad.plugin import check_options, client_tls

URL = {"url": "x"}


@attrs.frozen(kw_only=True)
class Options:
    url: str
    durable: bool = False
    seconds: float = 1.0
    token: str | None = None
    tls: ssl.SSLContext | str | None = None


def test_options_of_the_right_types_are_taken() -> None:
    made = check_options({"durable": True, "seconds": 2}, Options, where="t", given=URL)
    assert made == Options(url="x", durable=True, seconds=2.0)
    context = ssl.create_default_context()
    assert check_options({"tls": context}, Options, where="t", given=URL).tls is context


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("durable", "false", "expected a boolean, got a string"),
        ("seconds", "2", "expected a number, got a string"),
        ("token", 7, "expected a string, got an integer"),
    ],
)
def test_an_option_of_another_type_is_an_error_that_says_so_and_quotes_nothing(
    option: str, value: object, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_options({option: value}, Options, where="nats transport", given={"url": "secret-url"})
    said = str(caught.value)
    assert ("nats transport" in said, option in said, "secret-url" in said) == (True, True, False)


@pytest.mark.parametrize(
    ("option", "words"),
    [("durabel", 't: unknown option "durabel"; did you mean "durable"'), ("url", 'unknown option "url"')],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest_one_and_what_is_given_is_none(
    option: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_options({option: True}, Options, where="t", given=URL)


def test_paths_in_a_configuration_start_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "operad.toml").write_text('[transport]\nurl = "wss://h"\ntls_ca = "ca.pem"\ntls_key = "/k.pem"\n')
    options = OperationRegistry.from_config(tmp_path / "operad.toml").transport_options
    assert options == {"url": "wss://h", "tls_ca": str(tmp_path / "ca.pem"), "tls_key": "/k.pem"}


def test_a_file_of_certificates_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    both = "tls_cert: expected a PEM file with a certificate and its key, got .*rubbish.pem: "
    for ca, cert, key, name in (
        (str(tmp_path / "none.pem"), None, None, "tls_ca: .*none.pem"),
        (str(rubbish), None, None, "tls_ca: .*rubbish.pem"),
        (None, str(rubbish), None, both),
        (None, str(rubbish), "k.pem", "tls_cert: expected a PEM .*rubbish.pem with tls_key k.pem: "),
        (None, None, str(rubbish), "tls_key without tls_cert"),
    ):
        with pytest.raises(ConfigError, match=name):
            client_tls(ca, cert, key)
    assert client_tls(None, None, None) is None


def test_files_of_certificates_make_the_context_of_a_client(tmp_path: Path) -> None:
    authority, ca, own = trustme.CA(), str(tmp_path / "ca.pem"), str(tmp_path / "own.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("a.example").private_key_and_cert_chain_pem.write_to_path(own)
    for context in (client_tls(ca, None, None), client_tls(ca, own, None), client_tls(ca, own, own)):
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
