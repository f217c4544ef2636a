"""Providers of credentials, with which sources act on behalf of the caller of each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from operad import ConfigError
from operad.plugin import record
from operad.words import did_you_mean

if TYPE_CHECKING:
    from operad import OperationContext, OperationRegistry


@record
class CredentialProvider:
    """A provider that gives a source the credential of the caller of each call.

    Args:
        name: the name to which ``provider`` in the ``auth`` table of a source refers.
        get: ``await get(context, origin)`` returns a credential in the form of the source's own table, such as
            ``{"type": "bearer", "token": "…"}``, for requests to ``origin`` (``https://api.example.com``). It
            raises `CallError` if the caller has no credential.
        check: ``check(origin)`` raises `ConfigError` if no credential may be sent to the origin. It is called when
            the source is loaded.
        refused: ``refused(context, credential)`` is called when the service rejects a credential of `get`. It
            returns True if `get` may return another one now; the request is then sent once more.
    """

    name: str
    get: Callable[[OperationContext, str], Awaitable[Mapping[str, Any]]]
    check: Callable[[str], object] = attrs.field(default=lambda _: None)
    refused: Callable[[OperationContext, Mapping[str, Any]], bool] = attrs.field(default=lambda *_: False)


def provider_of(registry: OperationRegistry | None, name: str) -> CredentialProvider:
    """Return the provider of ``registry`` with this name. A source finds the registry in its `SourceContext`.

    Raises:
        ConfigError: no provider has this name, several have it, or ``registry`` is ``None``.
    """
    hooks = () if registry is None else registry.plugins.implementations("operad_credentials")
    providers: list[CredentialProvider] = [provider for hook in hooks for provider in hook(registry=registry)]
    found = [provider for provider in providers if provider.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f'credentials: {len(found)} providers have the name "{name}"; rename all but one')
    hint = did_you_mean(name, {provider.name for provider in providers})
    raise ConfigError(f'credentials: no provider has the name "{name}"{hint}; add a table [[credentials]] for it')
