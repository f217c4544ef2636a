"""The login of a source: an OAuth client for its credential, with endpoints of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from operad import ConfigError
from operad_openapi._document.origins import origin_of
from operad_openapi._document.security import scheme_of, schemes_of
from operad_openapi._document.servers import home_origins
from operad_openapi._http.tokens import endpoints_of, oauth_options
from operad_openapi._loading import Spec
from operad_openapi.api import load_document
from operad_openapi.config import HTTPAuth, HTTPServiceConfig
from operad_openapi.fs import OpenAPIFS

if TYPE_CHECKING:
    from operad_auth import OAuthClient


async def login_of(
    spec: Spec, config: HTTPServiceConfig, fs: OpenAPIFS | None, account: str | None
) -> OAuthClient:
    """Return the OAuth client for the first credential of type ``oauth2``.

    Args:
        spec: the document, or its path or URL; only read if the credential names no endpoints.
        config: the configuration of the source.
        fs: the file system that files are read from; ``None`` for the local one.
        account: the account to log in, instead of the credential's ``account``; ``None`` to keep that.

    Raises:
        ConfigError: no credential has the type ``oauth2``, neither it nor the document names the endpoints, or the
            document names an endpoint that is not https or not at an origin of the API.
        SourceError: the document cannot be read.
    """
    from operad_auth import OAuthClient

    named: list[tuple[str | None, HTTPAuth]] = [] if config.auth is None else [(None, config.auth)]
    named += config.credentials.items()
    found = [(name, auth) for name, auth in named if auth.type == "oauth2"]
    if not found:
        raise ConfigError(
            f"{config.namespace}: this source needs no login; to use one, set "
            'auth = { type = "oauth2", client_id = "…" }'
        )
    name, auth = found[0]
    if account is not None:
        auth = attrs.evolve(auth, account=account)
    declared: dict[str, str] = {}
    origins = frozenset(map(origin_of, config.origins))
    if auth.token_url is None and auth.issuer is None:
        document = (await load_document(spec, config, fs))[0]
        origins = home_origins(document, config, trusted=config.trusted)
        server = next(iter(sorted(origins)), "")
        names = [name] if name is not None else list(schemes_of(document))
        candidates = [endpoints_of(auth, scheme_of(document, scheme), server) for scheme in names]
        declared = next((endpoints for endpoints in candidates if endpoints), {})
    return OAuthClient(oauth_options(auth, declared, origins), name=config.namespace)
