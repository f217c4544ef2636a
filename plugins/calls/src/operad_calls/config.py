"""The options of the source ``remote``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from operad.records import record


def _is_url(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if "://" not in value:
        raise ValueError(f"{attribute.name}: expected scheme://…, such as ws://127.0.0.1:8765")


@record(kw_only=True)
class RemoteConfig:
    """The options of a ``remote`` source."""

    url: str = attrs.field(validator=_is_url, repr=False)  # may hold a password
    """Where the peers are, such as ``ws://127.0.0.1:8765``; its scheme chooses the transport's plugin."""
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)  # may hold a token
    """Options of the transport besides the URL, such as ``{ token = "${HUB_TOKEN}" }``."""
    wait: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    """Seconds to wait for peers to respond, if the transport does not know how many there are."""
    timeout: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Default timeout of a call in seconds."""
