"""Providers of credentials, with which sources act for the caller of each call."""

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
    """Gives a source the credential of the caller of each call.

    Args:
        name: the name in ``provider`` of the source's credential table.
        get: ``await get(context, origin)`` returns a credential in the form of the source's own table, such as
            ``{"type": "bearer", "token": "…"}``, for requests to ``origin`` (``https://api.example.com``). Raises
            `CallError` if the caller has none.
        check: ``check(origin)`` raises `ConfigError` if no credential may be sent there; called at load.
        refused: ``refused(context, credential)`` is called when the service does not accept what `get` returned.
            It returns True if `get` may return another one now; the request is then sent once more.
    """

    name: str
    get: Callable[[OperationContext, str], Awaitable[Mapping[str, Any]]]
    check: Callable[[str], object] = attrs.field(default=lambda _: None)
    refused: Callable[[OperationContext, Mapping[str, Any]], bool] = attrs.field(default=lambda *_: False)


def provider_of(registry: OperationRegistry | None, name: str) -> CredentialProvider:
    """Return the provider with this name; a source has the registry in its `SourceContext`.

    Raises:
        ConfigError: no plugin has it, or more than one.
    """
    hooks = () if registry is None else registry.plugins.implementations("operad_credentials")
    providers: list[CredentialProvider] = [provider for hook in hooks for provider in hook(registry=registry)]
    found = [provider for provider in providers if provider.name == name]
    if len(found) == 1:
        return found[0]
    what = "no plugin has a" if not found else "more than one plugin has a"
    hint = did_you_mean(name, {provider.name for provider in providers})
    raise ConfigError(f'{what} provider of credentials "{name}"{hint}; write it as [[credentials]]')
