"""Who makes envelopes: the factory of their kind, and nobody by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import rooms

ROOT = Path(__file__).parents[2]
PLUGINS = sorted((ROOT / "plugins").glob("*/src"))
FACTORIES = {("openapi", "operad_openapi.envelopes"), ("mcp", "operad_mcp.envelopes")}
OTHERS = {
    ("rules", "operad_rules.results"): "other data with the metadata that are there already",
    ("serve", "operad_serve.api.responses"): "metadata that are there already, in their wire form",
    ("testing", "operad_testing.transport.participant"): "a participant that serves by hand",
    ("testing", "operad_testing._envelopes"): "the kit tries what a kind's metadata become",
}


def made_by_hand(text: str) -> Iterator[str]:
    """The calls of a module that make an envelope, or the metadata of one."""
    is_named = re.search(r"(ResponseEnvelope|ResponseMeta)\s*\(", text)
    for node in ast.walk(ast.parse(text if is_named else "")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name == "ResponseEnvelope" or name.endswith("ResponseMeta"):
                yield name


@pytest.mark.parametrize("source", PLUGINS, ids=[source.parent.name for source in PLUGINS])
def test_the_envelopes_of_a_kind_are_made_by_its_factory(source: Path) -> None:
    distribution = source.parent.name
    found = {
        (distribution, module)
        for module, path in rooms.modules(source).items()
        if any(made_by_hand(path.read_text(encoding="utf-8")))
    }
    assert found == {one for one in FACTORIES | OTHERS.keys() if one[0] == distribution}


def test_an_envelope_made_by_hand_is_found() -> None:
    assert list(made_by_hand("yield ResponseEnvelope(data, HTTPResponseMeta(200, {}, ''))")) == [
        "ResponseEnvelope",
        "HTTPResponseMeta",
    ]
    assert not list(made_by_hand("http_envelope(data)"))
