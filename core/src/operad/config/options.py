"""Check the options of transports, and make TLS contexts from them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from operad.config.structuring import structure
from operad.errors import ConfigError
from operad.sources import from_folder
from operad.words import did_you_mean

T = TypeVar("T")


def check_options(
    options: Mapping[str, Any], config_class: type[T], *, where: str, given: Mapping[str, Any] | None = None
) -> T:
    """Return an instance of ``config_class``, an attrs class, with the values of ``options``.

    Args:
        options: values by name, from a configuration or a caller.
        config_class: an attrs class whose fields are the known options; values are checked against their types.
        where: the owner of the options, for messages (``"nats transport"``).
        given: values of fields that are not options, such as the URL.

    Raises:
        ConfigError: an unknown option (the message names the nearest known option), a missing option, or a value
            of the wrong type. The message quotes no value, because it may be a secret.
    """
    given = given or {}
    fields = attrs.fields(config_class)  # type: ignore[arg-type]  # an attrs class: that has no type
    known = {str(field.alias) for field in fields if field.init} - given.keys()
    for option in options:
        if option not in known:
            raise ConfigError(f'{where}: unknown option "{option}"{did_you_mean(option, known)}')
    return structure(config_class, {**options, **given}, where)


TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
"""The options of transports that are paths of files; see `client_tls`."""


def with_paths(options: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Return the options of a transport with absolute paths in `TLS_FILES`; see `from_folder` for errors."""
    return {
        name: str(from_folder(base_dir, value)) if name in TLS_FILES and isinstance(value, str) else value
        for name, value in options.items()
    }


def client_tls(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the TLS context of a client from PEM files; ``None`` if neither ``ca`` nor ``cert`` is given.

    Args:
        ca: the path of the certificates to trust; ``None`` means those of the system.
        cert: the path of the client's own certificate with its chain; ``None`` means no client certificate.
        key: the path of the certificate's key; ``None`` means that it is in the file of ``cert``.

    Raises:
        ConfigError: ``key`` is given without ``cert``, or a file cannot be read, is not PEM or has a password. The
            message names the file.
    """
    if key is not None and cert is None:
        raise ConfigError("tls_key without tls_cert: expected the certificate of the key as well; set tls_cert")
    if ca is None and cert is None:
        return None
    name, path = "tls_ca", ca
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            name, path = "tls_cert", cert if key is None else f"{cert} with tls_key {key}"
            context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        kind = "certificates" if name == "tls_ca" else "a certificate and its key"
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: expected a PEM file with {kind}, got {path}: {reason}") from None
    return context


def _no_password() -> str:
    """Raise, instead of asking for a password on the terminal while a service starts."""
    raise ValueError("expected a key without a password; decrypt the key")
