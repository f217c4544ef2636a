"""What operad-openapi contributes. Nothing heavy is imported before it is used."""

from __future__ import annotations

from collections.abc import Iterable

from operad.plugin import EnvelopeKind, Source, hookimpl
from operad_openapi.envelopes import HTTP_KIND
from operad_openapi.source import OpenAPISourceConfig, load


@hookimpl
def operad_envelope_kinds() -> Iterable[EnvelopeKind]:
    """The kind ``http``."""
    return (HTTP_KIND,)


@hookimpl
def operad_sources() -> Iterable[Source]:
    """The source ``openapi``."""
    return (
        Source(
            name="openapi",
            load=load,
            config_type=OpenAPISourceConfig,
            description="A REST API described by an OpenAPI document (2.0, 3.0, 3.1, 3.2; JSON or YAML).",
        ),
    )
