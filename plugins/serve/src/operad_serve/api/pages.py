"""The explorer: its static files, and the data that they show."""

from __future__ import annotations

import logging
from functools import cache
from importlib import resources
from typing import Any

from operad import OperadError, OperationRegistry
from operad.plugin import may_list
from operad.wire import to_json
from operad_serve.api.options import OpenAPIServerConfig
from operad_serve.api.traces import MAX_KEPT, Traces
from operad_serve.asgi import Exchange, Header
from operad_serve.problems import Problem, denied

logger = logging.getLogger("operad.serve")

PREFIX = "/explorer/"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_FILES = ("index.html", "about.js", "app.js", "calls.js", "forms.js", "page.js", "style.css", "icon.svg")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", _POLICY.encode()),
)


class Explorer:
    """The explorer of one application: the paths ``/`` and ``/explorer/``.

    Args:
        registry: the registry whose plugins and sources are shown.
        config: the title and the scope for managing sources.
        traces: the call trees to show.
        guarded: whether callers are authenticated. If not, only requests from this machine may manage sources.
    """

    def __init__(
        self, registry: OperationRegistry, config: OpenAPIServerConfig, traces: Traces, *, guarded: bool
    ) -> None:
        self._registry = registry
        self._config = config
        self._traces = traces
        self._guarded = guarded

    @staticmethod
    def is_static(path: str) -> bool:
        """Return True for a file of the page, which browsers request without a token."""
        return path == "/" or path.removeprefix(PREFIX) in _FILES

    async def serve(self, exchange: Exchange) -> None:
        """Respond to a request.

        Raises `Problem` if its path or method is wrong, its caller lacks access, or a source cannot be reloaded.
        """
        path = exchange.path
        if path == "/":
            await self._index(exchange)
            return
        name = path.removeprefix(PREFIX)
        if name in _FILES:
            _expect(exchange, "GET")
            await _send_file(exchange, name)
        elif name == "state":
            _expect(exchange, "GET")
            await exchange.respond(200, to_json(self._state(exchange)), "application/json")
        elif name.startswith("trace/"):
            _expect(exchange, "GET")
            id = name.removeprefix("trace/")
            tree = self._traces.tree(id, exchange.identity)
            if tree is None:
                kept = f"the latest {MAX_KEPT} trees are kept, each for its caller"
                raise Problem(404, f"no call tree of request {id!r:.100}; {kept}")
            await exchange.respond(200, to_json(tree), "application/json")
        elif name.startswith("reload/"):
            _expect(exchange, "POST")
            await self._reload(exchange, name.removeprefix("reload/"))
        else:
            raise Problem(404, "no such path; / is the explorer")

    async def _index(self, exchange: Exchange) -> None:
        _expect(exchange, "GET")
        # The links of the page are relative, so its address must end with a slash.
        if not exchange.scope["path"].endswith("/"):
            location = exchange.scope["path"].rpartition("/")[2] + "/"
            raise Problem(307, "the explorer's address ends with /", headers=[(b"location", location.encode())])
        await _send_file(exchange, "index.html")

    def _state(self, exchange: Exchange) -> dict[str, Any]:
        """Return the data that the page shows. Plugins and sources are included if the caller may manage them."""
        registry, identity = self._registry, exchange.identity
        manages = self._may_manage(exchange)
        state: dict[str, Any] = {
            "title": self._config.title or "operad",
            "guarded": self._guarded,
            "identity": None if identity is None else identity.id,
            "manages": manages,
            "adminScope": self._config.admin_scope,
            "operations": sum(may_list(spec.access_control, identity) for spec in registry.specs()),
        }
        if manages:
            state["plugins"] = [
                {
                    "name": record.name,
                    "distribution": record.distribution,
                    "version": record.version,
                    "status": record.status,
                    "error": record.error,
                    "contributes": {kind: list(names) for kind, names in record.contributes.items()},
                }
                for record in registry.plugins.records
            ]
            state["sources"] = [
                {
                    "name": source.name,
                    "type": source.type,
                    "status": source.status,
                    "operations": source.operations,
                    "error": source.error,
                    # The session of a source is any object of its plugin.
                    "held": dict(getattr(source.session, "held", {})),
                }
                for source in registry.sources.states()
            ]
        return state

    def _may_manage(self, exchange: Exchange) -> bool:
        if self._guarded:
            return exchange.identity is not None and self._config.admin_scope in exchange.identity.scopes
        return exchange.is_local

    async def _reload(self, exchange: Exchange, name: str) -> None:
        if not self._may_manage(exchange):
            if self._guarded and exchange.identity is None:
                raise denied("reloading a source requires a token; send Authorization: Bearer <token>")
            if not self._guarded:
                detail = "without an authenticator, only this machine may reload sources; configure one"
                raise Problem(403, detail)
            raise Problem(403, f"reloading a source requires a token with the scope {self._config.admin_scope}")
        # A page of another origin cannot send this header without a preflight (CORS).
        if exchange.header("operad-explorer") is None:
            raise Problem(400, "the header Operad-Explorer is missing; send Operad-Explorer: 1")
        try:
            await self._registry.sources.reload(name)
        except OperadError as error:
            raise Problem(409, str(error)) from error
        await exchange.respond(200, to_json(self._state(exchange)), "application/json")


def _expect(exchange: Exchange, method: str) -> None:
    if exchange.method != method and not (method == "GET" and exchange.method == "HEAD"):
        raise Problem(405, f"expected {method}, got {exchange.method}", headers=[(b"allow", method.encode())])


async def _send_file(exchange: Exchange, name: str) -> None:
    body, content_type = _file(name)
    headers = [*_SECURITY, (b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await exchange.start(200, headers)
    await exchange.write(b"" if exchange.method == "HEAD" else body, more=False)


@cache
def _file(name: str) -> tuple[bytes, str]:
    """Return the content of a file of the page, and its content type."""
    body = (resources.files("operad_serve") / "explorer" / name).read_bytes()
    return body, _TYPES[name.rpartition(".")[2]]
