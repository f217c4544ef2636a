"""The options of the source ``remote``, which loads operations of other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from operad.records import record


def _is_url(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if "://" not in value:
        raise ValueError(f"{attribute.name}: expected a URL such as ws://127.0.0.1:8765, got one without a scheme")


@record(kw_only=True)
class RemoteConfig:
    """The table of a source ``remote`` in a configuration."""

    url: str = attrs.field(validator=_is_url, repr=False)  # may hold a password
    """The URL of the hub or broker, such as ``ws://127.0.0.1:8765``. The scheme chooses the transport."""
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)  # may hold a token
    """Further options of the transport, such as ``{ token = "${HUB_TOKEN}" }``."""
    wait: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    """Seconds to wait for the responses of peers; less if the transport knows that all have responded."""
    timeout: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """The default timeout of a call, in seconds."""
