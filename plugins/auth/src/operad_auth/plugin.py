"""The plugin ``auth``: the tables ``[[credentials]]`` of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operad.plugin import Table, hookimpl
from operad_auth.providers import CredentialProvider

if TYPE_CHECKING:
    from operad import OperationRegistry


def _options() -> type[Any]:
    from operad_auth.callers import CallerCredentials

    return CallerCredentials


@hookimpl
def operad_tables() -> list[Table]:
    """Return the definition of the tables ``[[credentials]]``."""
    return [Table("credentials", _options, "How sources act for the caller of each call.")]


@hookimpl
def operad_credentials(registry: OperationRegistry) -> list[CredentialProvider]:
    """Return the providers that the tables ``[[credentials]]`` describe; an empty list without such tables.

    Raises `ConfigError` if a table is invalid, or forwards tokens that are meant for this server alone.
    """
    if registry.configuration is None or "credentials" not in registry.configuration.tables:
        return []
    from operad import ConfigError
    from operad_auth.callers import CallerCredentials, Entries, Exchange, Forward
    from operad_auth.connecting import user_tokens

    kinds: dict[str, type[Any]] = {"table": Entries, "forward": Forward, "exchange": Exchange}
    found, users = [], user_tokens(registry)
    for options in registry.configuration.array("credentials", CallerCredentials):
        issuing = [
            each for each in ("jwt", "oauth", "introspection") if registry.configuration.values(f"serve.{each}")
        ]
        if options.type == "forward" and issuing:
            # MCP forbids it: who publishes RFC 9728 metadata gets tokens that are meant for this server alone.
            message = 'credentials "{}": tokens of [serve.{}] are for this server only; use type = "exchange"'
            raise ConfigError(message.format(options.name, issuing[0]))
        provider = users[options.name] if options.type == "oauth" else kinds[options.type](options)
        more = {"refused": provider.refused} if hasattr(provider, "refused") else {}
        found.append(CredentialProvider(options.name, provider.get, provider.check, **more))
    return found
