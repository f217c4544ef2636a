"""Whatever plugins claim, and whatever is wrong with some: what there is, is what the loaded ones contribute."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import attrs
from hypothesis import given
from hypothesis import strategies as st

from operad import EnvelopeKind, PluginError, Plugins, hookimpl
from operad.plugin import Server, Source, Transport, TransportFactory

KINDS = {
    "sources": "operad_sources",
    "envelope_kinds": "operad_envelope_kinds",
    "transports": "operad_transports",
    "servers": "operad_servers",
}
FAULTS = ("none", "none", "none", "raises", "wrong type", "version", "misspelt")


@attrs.frozen
class Config: ...


async def never(*arguments: Any) -> Any:
    raise NotImplementedError


def nowhere(url: str) -> Transport:
    raise NotImplementedError


def contribution(kind: str, name: str) -> Any:
    if kind == "sources":
        return Source(name, never, Config)
    if kind == "servers":
        return Server(name, never, Config)
    if kind == "transports":
        return TransportFactory((name,), nowhere)

    @attrs.frozen
    class Meta:
        source: ClassVar[str] = name

    return EnvelopeKind(name, Meta)


claims = st.dictionaries(st.sampled_from(sorted(KINDS)), st.lists(st.sampled_from("abcd"), max_size=3), max_size=4)


def make(claimed: dict[str, list[str]], fault: str) -> ModuleType:
    module = ModuleType("m")
    for kind, names in claimed.items():
        items = [contribution(kind, name) for name in names]
        setattr(module, KINDS[kind], hookimpl(lambda items=items: items))
    if fault == "raises":
        module.operad_servers = hookimpl(lambda: 1 / 0)  # type: ignore[attr-defined]  # made here
    elif fault == "wrong type":
        module.operad_servers = hookimpl(lambda: ["no server"])  # type: ignore[attr-defined]  # made here
    elif fault == "version":
        module.operad_api_version = 2  # type: ignore[attr-defined]  # made here
    elif fault == "misspelt":
        module.operad_serverz = hookimpl(lambda: [])  # type: ignore[attr-defined]  # noqa: PIE807  # made here; a type takes no mark
    return module


@given(st.lists(st.tuples(claims, st.sampled_from(FAULTS)), max_size=6))
def test_every_name_has_the_first_loaded_plugin_that_claims_it(
    plugins_made: list[tuple[dict[str, list[str]], str]],
) -> None:
    plugins = Plugins()
    owners: dict[tuple[str, str], int] = {}
    for index, (claimed, fault) in enumerate(plugins_made):
        claims_made = [(kind, name) for kind, names in claimed.items() for name in names]
        good = (
            fault == "none" and len(set(claims_made)) == len(claims_made) and not owners.keys() & set(claims_made)
        )
        before = (dict(plugins.sources), dict(plugins.transports), dict(plugins.servers))
        kinds_before = plugins.envelope_kinds.sources
        try:
            plugins.register(make(claimed, fault), f"p{index}")
        except PluginError:
            assert not good
            assert plugins.records[-1].status != "loaded"
            assert plugins.records[-1].error
            assert (dict(plugins.sources), dict(plugins.transports), dict(plugins.servers)) == before
            assert plugins.envelope_kinds.sources == kinds_before
        else:
            assert good
            owners.update(dict.fromkeys(claims_made, index))
    loaded = [record for record in plugins if record.status == "loaded"]
    there = {
        "sources": set(plugins.sources),
        "transports": set(plugins.transports),
        "servers": set(plugins.servers),
        "envelope_kinds": set(plugins.envelope_kinds.sources) - {"local"},
    }
    for kind, names in there.items():
        assert sorted(names) == sorted(name for record in loaded for name in record.contributes.get(kind, ()))
        assert names == {name for owned, name in owners if owned == kind}
    assert len(plugins.implementations("operad_sources")) == len(
        Plugins().implementations("operad_sources")
    ) + sum(
        "sources" in claimed
        for (claimed, _), record in zip(plugins_made, plugins, strict=True)
        if record.status == "loaded"
    )
