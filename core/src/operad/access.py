"""Access control: the requirements of operations, and the identities of callers. In doubt, access is denied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from operad.errors import CallError, ErrorCode
from operad.records import record


def _strings(value: Iterable[str], name: str = "required scopes") -> tuple[str, ...]:
    if isinstance(value, str):  # "read" would become ("r", "e", "a", "d"), and deny every caller
        raise TypeError(f'{name}: expected a list of strings, got the string "{value:.99}"; write ["{value:.99}"]')
    if isinstance(value, Mapping) or not isinstance(value, Iterable):  # {"write": false} would grant "write"
        raise TypeError(f'{name}: expected a list of strings, such as ["read"], got {type(value).__name__}')
    strings = tuple(value)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"{name}: expected a list of strings, got a list with {type(string).__name__}")
    return strings


def _scopes(value: Iterable[str]) -> frozenset[str]:
    return frozenset(_strings(value, "scopes"))


def _resources(value: Mapping[str, Iterable[str]]) -> Mapping[str, frozenset[str]]:
    if not isinstance(value, Mapping):
        raise TypeError(f'resources: expected a mapping such as {{"pet:7": ["read"]}}, got {type(value).__name__}')
    # Read-only: a handler must not widen what its caller was granted for the calls that follow.
    return MappingProxyType({key: frozenset(_strings(value[key], f"resources: {key!r:.99}")) for key in value})


@record
class AccessControl:
    """The requirements of an operation on its callers; all must be met. By default every caller may call it."""

    required_scopes: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    """Scopes that the identity must all have."""
    required_scopes_any: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    """Scopes of which the identity must have at least one."""
    resource_type: str | None = None
    """The type, without a colon, of the resource on which a grant is needed; requires ``resource_action``."""
    resource_action: str | None = None
    """The action that the grant must allow."""
    resource_id_from: str | None = None
    """The input field that holds the resource's id.

    If ``None``, only a grant on ``type:*`` meets the requirement.
    """

    def __attrs_post_init__(self) -> None:
        if (self.resource_type is None) != (self.resource_action is None):
            raise ValueError("resource_type and resource_action go together, but only one is set; set both")
        if self.resource_id_from is not None and self.resource_type is None:
            raise ValueError("resource_id_from needs resource_type and resource_action; set all three")
        if self.resource_type is not None and ":" in self.resource_type:
            # "a:b" with id "c" and "a" with id "b:c" would be one grant, "a:b:c".
            raise ValueError(f'resource_type: expected a name without a colon, got "{self.resource_type}"')

    @property
    def is_open(self) -> bool:
        """Whether the requirements are empty, so that every caller may call the operation."""
        return not (self.required_scopes or self.required_scopes_any or self.resource_type is not None)


OPEN = AccessControl()


@record
class Identity:
    """The caller: an id, the scopes granted to it, and grants on single resources."""

    id: str
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_scopes)
    resources: Mapping[str, frozenset[str]] = attrs.field(factory=dict, converter=_resources)
    """The granted actions, ``{"type:id": {actions}}``; ``type:*`` means every resource of the type. Read-only."""

    def __reduce__(self) -> tuple[type[Identity], tuple[str, frozenset[str], dict[str, frozenset[str]]]]:
        return Identity, (self.id, self.scopes, dict(self.resources))  # a read-only mapping cannot be pickled

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: ``{id, scopes, resources?}``."""
        wire: dict[str, Any] = {"id": self.id, "scopes": sorted(self.scopes)}
        if self.resources:
            wire["resources"] = {key: sorted(actions) for key, actions in self.resources.items()}
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Identity:
        """Return the identity with this JSON form, see `to_wire`. Raises `ValueError` for any other object."""
        try:
            if not isinstance(wire, Mapping):
                raise TypeError(f"expected an object, got {type(wire).__name__}")
            if not isinstance(wire.get("id"), str):
                raise TypeError(f"id: expected a string, got {type(wire.get('id')).__name__}")
            return cls(wire["id"], wire.get("scopes", ()), wire.get("resources") or {})
        except TypeError as error:
            raise ValueError(f"not an identity {{id, scopes, resources?}}: {error}") from error


def check_access(access_control: AccessControl, identity: Identity | None, input: Any = None) -> None:
    """Raise `CallError` ``ACCESS_DENIED`` unless ``identity`` has all that ``access_control`` requires.

    Args:
        access_control: the operation's requirements; all of them must be met.
        identity: the caller; ``None`` is an anonymous caller, which meets no requirement.
        input: the call's input, for ``resource_id_from``.
    """
    missing = missing_access(access_control, identity, input)
    if missing:
        who = "a caller without identity" if identity is None else f'identity "{identity.id}"'
        # The details name what is required, never what the caller has.
        wanted = []
        if scopes := missing.get("requiredScopes"):
            wanted.append(f"the scopes {', '.join(scopes)}")
        if scopes := missing.get("requiredScopesAny"):
            wanted.append(f"one of the scopes {', '.join(scopes)}")
        if kind := missing.get("resourceType"):
            wanted.append(f'a grant of "{missing["resourceAction"]}" on this "{kind}"')
        raise CallError(ErrorCode.ACCESS_DENIED, f"{who} does not have {' and '.join(wanted)}", missing)


def missing_access(access_control: AccessControl, identity: Identity | None, input: Any = None) -> dict[str, Any]:
    """Return the requirements that ``identity`` does not meet, as details of ``ACCESS_DENIED``; else ``{}``."""
    if access_control.is_open:
        return {}
    scopes = frozenset() if identity is None else identity.scopes
    missing: dict[str, Any] = {}
    if not scopes.issuperset(access_control.required_scopes):
        missing["requiredScopes"] = list(access_control.required_scopes)
    if access_control.required_scopes_any and scopes.isdisjoint(access_control.required_scopes_any):
        missing["requiredScopesAny"] = list(access_control.required_scopes_any)
    if access_control.resource_type is not None and not _has_grant(access_control, identity, input):
        missing["resourceType"] = access_control.resource_type
        missing["resourceAction"] = access_control.resource_action
    return missing


def may_list(access_control: AccessControl, identity: Identity | None) -> bool:
    """Return True if ``identity`` may call the operation with at least one input.

    Listings and searches show only operations for which this is true.
    """
    missing = missing_access(access_control, identity)
    if missing.keys() <= {"resourceType", "resourceAction"} and identity is not None:
        action, kind = access_control.resource_action, f"{access_control.resource_type}:"
        usable = access_control.resource_id_from is not None
        return not missing or (
            usable and any(key.startswith(kind) and action in held for key, held in identity.resources.items())
        )
    return not missing


def _has_grant(access_control: AccessControl, identity: Identity | None, input: Any) -> bool:
    if identity is None:
        return False
    kind, action = access_control.resource_type, access_control.resource_action
    if action in identity.resources.get(f"{kind}:*", ()):
        return True
    if access_control.resource_id_from is None or not isinstance(input, Mapping):
        return False
    resource_id = input.get(access_control.resource_id_from)
    if not isinstance(resource_id, (str, int)) or isinstance(resource_id, bool) or resource_id == "*":
        return False
    return action in identity.resources.get(f"{kind}:{resource_id}", ())
