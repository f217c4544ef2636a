"""The entry point with the hooks of operad-openapi. Heavy modules are imported when they are first used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from operad.plugin import EnvelopeKind, Source, hookimpl

if TYPE_CHECKING:
    from operad.plugin import Login, SourceContext, SourceSession


@hookimpl
def operad_envelope_kinds() -> Iterable[EnvelopeKind]:
    """Return the envelope kind ``http``."""
    from operad_openapi.envelopes import HTTP_KIND

    return (HTTP_KIND,)


@hookimpl
def operad_sources() -> Iterable[Source]:
    """Return the source ``openapi``."""
    return (
        Source(
            name="openapi",
            load=_load,
            config_type=_source_config,
            login=_login,
            description="A REST API described by an OpenAPI document (2.0, 3.0, 3.1, 3.2; JSON or YAML).",
        ),
    )


def _source_config() -> type[Any]:
    from operad_openapi.source import OpenAPISourceConfig

    return OpenAPISourceConfig


async def _load(config: Any, context: SourceContext) -> SourceSession:
    from operad_openapi.source import load

    return await load(config, context)


async def _login(config: Any, context: SourceContext, account: str | None) -> Login:
    from operad_openapi.source import login

    return await login(config, context, account)
