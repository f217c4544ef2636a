"""Links, callbacks and webhooks of a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from operad_openapi._document.contents import responses_of
from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import METHODS, RawOperation

_LINK = ("operationId", "operationRef", "parameters", "requestBody", "description")


def links_of(document: Document, raw: RawOperation) -> Json:
    """Return the links of an operation's 2xx responses, keyed by name; parameters are runtime expressions."""
    found: Json = {}
    for status, node in responses_of(raw).items():
        if not isinstance(node, dict) or not ("links" in node or "$ref" in node) or str(status)[:1] != "2":
            continue
        response = _resolved(document, node)
        links = response.get("links")
        for name, link in links.items() if isinstance(links, Mapping) else ():
            link = _resolved(document, link)
            found[str(name)] = {key: link[key] for key in _LINK if key in link}
    return found


def callbacks_of(document: Document, raw: RawOperation) -> Json:
    """Return lists of requests that the server may send, keyed by callback name.

    A request is a text such as ``POST {$request.body#/url}``.
    """
    found: Json = {}
    callbacks = raw.node.get("callbacks")
    if callbacks is None:
        return found
    for name, callback in callbacks.items() if isinstance(callbacks, Mapping) else ():
        requests = [
            f"{method} {expression}"
            for expression, item in _resolved(document, callback).items()
            for method in _methods(_resolved(document, item))
        ]
        found[str(name)] = requests
    return found


def webhooks_of(document: Document) -> list[Json]:
    """Return an object for each method of each webhook.

    Its members are ``name``, ``method``, ``pointer``, and, if declared, ``operationId`` and ``summary``.
    """
    webhooks = document.root.get("webhooks", document.root.get("x-webhooks"))
    key = "webhooks" if "webhooks" in document.root else "x-webhooks"
    found = []
    for name, raw in webhooks.items() if isinstance(webhooks, Mapping) else ():
        item = _resolved(document, raw)
        for method in _methods(item):
            node = _resolved(document, item[method.lower()])
            entry = {"name": str(name), "method": method, "pointer": f"#/{key}/{name}/{method.lower()}"}
            entry |= {word: node[word] for word in ("operationId", "summary") if isinstance(node.get(word), str)}
            found.append(entry)
    return found


def _methods(item: Json) -> Iterator[str]:
    return (method.upper() for method in METHODS if method in item)


def _resolved(document: Document, node: Any) -> Json:
    try:
        found = document.resolve(node)
    except PointerError:
        return {}
    return found if isinstance(found, dict) else {}
