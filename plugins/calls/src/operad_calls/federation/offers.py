"""The operations that peers list, and how the listings of several peers are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import attrs

from operad.access import AccessControl
from operad.errors import OperadError
from operad.operations import OperationSpec, OperationType
from operad_calls.serving.listing import MAX_VIA, REMOTE

Warn = Callable[[str, str], None]
"""``warn(instance, line)`` logs a warning about a peer, unless there are too many."""


@attrs.frozen(eq=False)
class Offer:
    """An operation that a peer lists."""

    instance: str
    spec: OperationSpec
    """The spec with the peer's own id and without schemas."""
    via: tuple[str, ...]
    """The instances of the handlers that forward the operation to the peer."""
    described: bool = False
    """Whether the schemas of the operation have been loaded."""

    def is_same(self, other: Offer) -> bool:
        """Return True if another offer is of the same peer and lists the same properties of the operation."""
        return bool(_listed(self) == _listed(other))


_resource = attrgetter("resource_type", "resource_action", "resource_id_from")
_required = attrgetter("type", "idempotent", "access_control")
_listed = attrgetter(
    *("instance", "via", "spec.type", "spec.idempotent", "spec.access_control", "spec.version"),
    *("spec.description", "spec.title", "spec.deprecated", "spec.tags"),
)


def offer_of(instance: str, wire: object, warn: Warn) -> Offer | None:
    """Return the offer in an entry. Warn and return ``None`` if it is invalid, or forwarded `MAX_VIA` times."""
    try:
        if not isinstance(wire, Mapping):
            raise TypeError(f"expected an object, got {type(wire).__name__}")
        given = wire.get("via", [])
        via = tuple(item for item in given if isinstance(item, str)) if isinstance(given, list) else ()
        spec = OperationSpec.from_wire(wire)
    except (OperadError, TypeError, ValueError) as error:  # a peer may send anything
        warn(instance, f"peer {instance} lists an operation that cannot be used: {error}")
        return None
    if len(via) >= MAX_VIA:
        why = f"{len(via)} handlers forward it, expected fewer than {MAX_VIA}"
        warn(instance, f"ignored {spec.id} of peer {instance}: {why}")
        return None
    return Offer(instance, spec, via)


def operation_of(offer: Offer, namespace: str | None, warn: Warn) -> OperationSpec | None:
    """Return the spec of an offer, its id prefixed with ``namespace``; warn and return ``None`` if invalid."""
    spec = offer.spec
    remote = {"instance": offer.instance, "operationId": spec.id, "via": list(offer.via)}
    changes: dict[str, Any] = {"metadata": {**spec.metadata, REMOTE: remote}}
    if namespace is not None:
        changes.update(namespace=namespace, name=spec.id)
    try:
        return attrs.evolve(spec, **changes)
    except (OperadError, TypeError, ValueError) as error:
        warn(offer.instance, f"peer {offer.instance} lists an operation that cannot be used: {error}")
        return None


def stricter(one: Offer, other: Offer, warn: Warn) -> Offer:
    """Merge two offers of the same operation. If they differ, log a warning and combine their requirements.

    A request goes to any instance that serves the operation. So a caller could avoid the requirements of one
    instance if only those of the other applied. The result is based on the offer that fewer handlers forward.
    """
    if len(other.via) < len(one.via):
        one, other = other, one
    spec, second = one.spec, other.spec
    if _required(spec) == _required(second):
        return one
    who = f"{one.instance} and {other.instance}"
    warn(other.instance, f"{who} list {spec.id} differently; the requirements of both apply")
    kind = spec.type
    if second.type is not kind and OperationType.SUBSCRIPTION not in (kind, second.type):
        kind = OperationType.MUTATION
    access = _strictest_access(spec.access_control, second.access_control)
    changed = attrs.evolve(
        spec, type=kind, idempotent=spec.idempotent and second.idempotent, access_control=access
    )
    return attrs.evolve(one, spec=changed)


def _strictest_access(one: AccessControl, other: AccessControl) -> AccessControl:
    """Return access requirements that include both."""
    scopes = dict.fromkeys((*one.required_scopes, *other.required_scopes))
    first, second = one.required_scopes_any, other.required_scopes_any
    any_of = first or second
    if first and second and set(first) != set(second):
        any_of = tuple(scope for scope in first if scope in second)
        if not any_of:
            scopes.update(dict.fromkeys((*first, *second)))
    resource = one if one.resource_type is not None else other
    if other.resource_type is not None and _resource(other) != _resource(resource):
        # Two grants cannot be required; a grant on a resource that does not exist closes the operation.
        return attrs.evolve(
            resource, required_scopes=tuple(scopes), resource_type="operad.conflict", resource_id_from=None
        )
    return attrs.evolve(resource, required_scopes=tuple(scopes), required_scopes_any=any_of)
