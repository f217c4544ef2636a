"""The transport over which `operad serve` serves other processes."""

from __future__ import annotations

from urllib.parse import urlsplit

from operad import ConfigError, OperationRegistry, PluginError
from operad.plugin import Transport
from operad_auth.http.urls import shown_url
from operad_serve.door.messages import report


def _is_same_place(one: str, other: str) -> bool:
    """Return True if two URLs have the same scheme, host and port."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.port) == (second.scheme, second.hostname, second.port)


def transport_of(registry: OperationRegistry, url: str | None) -> tuple[Transport, str]:
    """Return the transport for a URL, and the URL. If ``url`` is None, the URL in ``[transport]`` is used.

    The options in ``[transport]`` are ignored, with a warning, if its URL has a different scheme, host or port.

    Raises:
        ConfigError: there is no URL, or an option of ``[transport]`` is wrong.
        PluginError: no plugin provides a transport for the URL.
    """
    options = dict(registry.transport_options)
    configured = options.pop("url", None)
    if url is None and configured is None:
        raise ConfigError(
            "expected the URL of a transport, got none; add --transport ws://127.0.0.1:8765, or url in [transport]"
        )
    if url is None:
        url = str(configured)
    elif configured is not None and options and not _is_same_place(url, configured):
        # A token that is meant for one hub must not reach another one.
        kept = ", ".join(sorted(options))
        report(f"warning: [transport] is for {shown_url(configured)}; its options are not used here: {kept}")
        options = {}
    if url != configured or registry.configuration is None:
        return registry.plugins.transport(url, **options), url
    try:
        return registry.plugins.transport(url, **options), url
    except (PluginError, ConfigError) as error:
        raise type(error)(f"{error} @ {registry.configuration.where('transport')}") from None
