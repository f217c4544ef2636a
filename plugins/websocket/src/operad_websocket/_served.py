"""The hub of ``operad hub``, made from the table ``[hub]``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from operad import Identity
from operad.plugin import ConfigError
from operad.sources import from_folder
from operad_auth import authenticator_from
from operad_auth.http.urls import is_loopback_host
from operad_websocket.config import HubConfig
from operad_websocket.hub import Hub


class ServedHub(Hub):
    """A hub that the table ``[hub]`` of a configuration describes.

    Args:
        config: the table.
        base_dir: the folder from which relative paths start.

    Raises:
        ConfigError: an option or a file cannot be used, or other machines could connect without authentication.
    """

    def __init__(self, config: HubConfig, base_dir: Path) -> None:
        host, port = _address(config.listen)
        authenticate = authenticator_from(
            authenticate=config.authenticate,
            jwt=config.jwt,
            introspection=config.introspection,
            tokens=config.tokens,
            tokens_file=config.tokens_file,
            base_dir=base_dir,
        )
        if authenticate is None and not is_loopback_host(host):
            raise ConfigError(
                f"listen: expected a loopback address for a hub without an authenticator, got {host}: any client "
                "could call and serve; pass --tokens FILE or --jwks URL, or write [[hub.tokens]]"
            )
        super().__init__(
            authenticate,
            host,
            port,
            ssl=_server_tls(config, base_dir),
            limits=config.limits,
            authorize=_rule(config.names) if config.names is not None else None,
            max_payload=config.max_payload,
            max_buffer=config.max_buffer,
            ping=config.ping,
            allowed_origins=config.allowed_origins,
            anonymous=config.anonymous,
            check_frames=config.check_frames,
        )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f'listen: expected HOST:PORT, such as 127.0.0.1:8765, got "{text}"')
    return host.strip("[]"), int(port)


def _server_tls(config: HubConfig, base_dir: Path) -> ssl.SSLContext | None:
    if config.cert is None:
        if config.key is not None or config.client_ca is not None:
            raise ConfigError(
                "cert: expected the certificate of the hub, because key or client_ca is set; set cert"
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    cert = from_folder(base_dir, config.cert)
    key = cert if config.key is None else from_folder(base_dir, config.key)
    name, path = "cert", f"{cert}" if key == cert else f"{cert} with key {key}"

    def no_password() -> str:
        """Raise instead of asking for a password on the terminal."""
        where = "cert" if config.key is None else "key"
        raise ConfigError(
            f"{where}: expected a private key without a password, got an encrypted one in {key}; decrypt it"
        )

    try:
        context.load_cert_chain(cert, key, password=no_password)
        if config.client_ca is not None:
            name, path = "client_ca", f"{from_folder(base_dir, config.client_ca)}"
            context.load_verify_locations(path)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: {path} cannot be used: {reason}") from None
    return context


def _rule(names: Mapping[str, Sequence[str]]) -> Callable[[Identity | None, str], bool]:
    """Return ``authorize`` for patterns of operation ids, by identity id; ``"*"`` means every identity."""

    def authorize(identity: Identity | None, address: str) -> bool:
        operation_id = address.partition(":")[2]
        if address.startswith("all:") or operation_id.startswith("operad."):
            return True  # for discovery, which only lists what is served
        owner = "*" if identity is None else identity.id
        patterns = [*names.get(owner, ()), *names.get("*", ())]
        return any(fnmatchcase(operation_id, pattern) for pattern in patterns)

    return authorize
