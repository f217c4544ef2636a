"""Who may come in: the host rules, and the identity of a request."""

from __future__ import annotations

from typing import Any

from operad import CallError, ErrorCode
from operad.sources import Admission
from operad_auth import Credentials, HostRules, as_authenticator
from operad_serve.api.exchange import Exchange
from operad_serve.api.options import OpenAPIServerConfig
from operad_serve.api.problems import Problem, denied


class Doorkeeper:
    """Checks requests before anything is done for them."""

    def __init__(self, config: OpenAPIServerConfig) -> None:
        self._rules = HostRules(config.allowed_hosts, config.allowed_origins)
        self._authenticate = None if config.authenticate is None else as_authenticator(config.authenticate)

    @property
    def has_authenticator(self) -> bool:
        """Whether callers can be somebody."""
        return self._authenticate is not None

    def check_place(self, exchange: Exchange) -> None:
        """Raise `Problem` for a host or an origin that may not call; else add what CORS asks for."""
        scope = exchange.scope
        origin = exchange.header("origin")
        if "operad" not in scope:  # a composition has not looked at it yet
            ambiguous = self._rules.ambiguity(scope["headers"])
            if ambiguous is not None:  # nor is it certain where the next request begins
                raise Problem(*ambiguous, headers=[(b"connection", b"close")])
            refused = self._rules.refusal(scope.get("server"), exchange.header("host"), origin)
            if refused is not None:
                raise Problem(*refused)
        if origin is not None and self._rules.allows_origin(origin):
            exchange.add_header(b"access-control-allow-origin", origin)
            exchange.add_header(b"access-control-expose-headers", "Operad-Source, Operad-Meta, Operad-Request-Id")
            exchange.add_header(b"vary", "Origin")
            if exchange.method == "OPTIONS":
                exchange.add_header(b"access-control-allow-methods", "GET, POST, OPTIONS")
                exchange.add_header(
                    b"access-control-allow-headers",
                    "Authorization, Content-Type, Accept, Operad-Timeout, Operad-Trace, Last-Event-ID",
                )
                exchange.add_header(b"access-control-max-age", "600")

    async def identify(self, exchange: Exchange) -> None:
        """Set the identity of the exchange.

        Raises:
            Problem: credentials came that stand for nobody (401), or that cannot be judged now (503).
        """
        admission: Any = exchange.scope.get("operad")
        if isinstance(admission, Admission):
            if admission.is_refused:
                raise denied("the credentials are not accepted", invalid=True)
            exchange.identity = admission.identity
            return
        if self._authenticate is None:
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
        client = exchange.scope.get("client")
        credentials = Credentials.from_headers(headers, client[0] if client else None)
        try:
            exchange.identity = await self._authenticate(credentials)
        except CallError as error:
            if error.code == ErrorCode.UNAVAILABLE:
                raise Problem(503, "who calls cannot be found out now; try again", code=error.code) from error
            raise denied("the credentials are not accepted", invalid=True) from error
        if exchange.identity is None and credentials.token is not None:
            raise denied("the credentials are not accepted", invalid=True)
