"""TLS of a source: the certificates that it trusts and presents."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from operad_openapi.config import HTTPOptions

if TYPE_CHECKING:
    import ssl


def tls_of(options: HTTPOptions) -> ssl.SSLContext | bool:
    """Return the ``ssl`` argument for aiohttp: a context, or whether to verify certificates.

    Raises `ConfigError` for a certificate or key file that cannot be used.
    """
    if options.ssl is not None:
        return cast("ssl.SSLContext", options.ssl)
    if options.tls_ca is None and options.tls_cert is None and options.tls_key is None:
        return options.tls_verify
    from operad.plugin import client_tls  # brings ssl along, which most documents are loaded without

    context = client_tls(options.tls_ca, options.tls_cert, options.tls_key)
    assert context is not None
    if not options.tls_verify:
        context.check_hostname = False
        context.verify_mode = context.verify_mode.CERT_NONE
    return context


def has_certificate(options: HTTPOptions) -> bool:
    """Return True if a client certificate is configured, or may be part of the application's own TLS context."""
    return options.ssl is not None or options.tls_cert is not None
