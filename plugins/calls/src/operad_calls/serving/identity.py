"""Who makes a request, as the serving side sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from operad.access import Identity
from operad.errors import CallError, ErrorCode
from operad.transports import Delivery, Transport

Verifier = Callable[[dict[str, Any], Delivery], "Identity | Awaitable[Identity | None] | None"]
"""``verifier(payload, delivery)`` tells who makes a request, from a signed token in it, say."""


def identity_rule(identity: Literal["peer", "delegate"] | Verifier | None, transport: Transport) -> Verifier:
    """The verifier of a rule, or of the transport's default. Raises `ValueError`."""
    capabilities = transport.capabilities
    if callable(identity):
        return identity
    if identity is None:
        identity = "delegate" if capabilities.same_process else "peer" if capabilities.authenticates_peer else None
    if identity == "peer":
        return _peer
    if identity == "delegate":
        return _delegated
    if identity is None:
        return _nobody
    raise ValueError(f'identity: expected "peer", "delegate" or a callable, got {identity!r}')


def _peer(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    return delivery.identity


def _nobody(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    return None


def _delegated(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    wire = payload.get("identity")
    if wire is None:
        return None
    try:
        return Identity.from_wire(wire)
    except ValueError as error:
        raise CallError(ErrorCode.ACCESS_DENIED, f"the request names no usable identity: {error}") from None
