"""The rules that determine the identity of a caller at the serving side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from operad.access import Identity
from operad.errors import CallError, ErrorCode
from operad.transports import Delivery, Transport

Verifier = Callable[[dict[str, Any], Delivery], "Identity | Awaitable[Identity | None] | None"]
"""``verifier(payload, delivery)`` returns the identity of a request's caller; ``None`` if it is anonymous."""


def identity_rule(identity: Literal["peer", "delegate"] | Verifier | None, transport: Transport) -> Verifier:
    """Return the verifier for ``identity`` as in `CallHandler`. Raises `ValueError` if ``identity`` is invalid."""
    capabilities = transport.capabilities
    if callable(identity):
        return identity
    if identity is None:
        identity = "delegate" if capabilities.same_process else "peer" if capabilities.authenticates_peer else None
    if identity == "delegate":
        return _delegated
    if identity not in ("peer", None):
        raise ValueError(f'identity: expected "peer", "delegate" or a callable, got {identity!r}')
    return (lambda payload, delivery: delivery.identity) if identity else (lambda payload, delivery: None)


def _delegated(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    wire = payload.get("identity")
    if wire is None:
        return None
    try:
        return Identity.from_wire(wire)
    except ValueError as error:
        raise CallError(ErrorCode.ACCESS_DENIED, f"the identity in the request is not valid: {error}") from None
