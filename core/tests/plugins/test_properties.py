"""Whatever plugins claim, and whatever is wrong with some: what there is, is what the loaded ones contribute."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import attrs
from hypothesis import given
from hypothesis import strategies as st

from operad import EnvelopeKind, PluginError, Plugins, hookimpl
from operad.plugin import Server, Source, Transport, TransportFactory

FAULTY: dict[str, dict[str, Any]] = {
    "raises": {"operad_servers": lambda: 1 / 0},
    "wrong type": {"operad_servers": lambda: ["no server"]},
    "version": {"operad_api_version": 2},
    "misspelt": {"operad_serverz": lambda: ()},
}

KINDS = {
    "sources": "operad_sources",
    "envelope_kinds": "operad_envelope_kinds",
    "transports": "operad_transports",
    "servers": "operad_servers",
}
FAULTS = ("none", "none", "none", *FAULTY)


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
    hooks = {KINDS[kind]: [contribution(kind, name) for name in names] for kind, names in claimed.items()}
    made = {hook: lambda items=items: items for hook, items in hooks.items()} | FAULTY.get(fault, {})
    vars(module).update({name: hookimpl(it) if callable(it) else it for name, it in made.items()})
    return module


@given(st.lists(st.tuples(claims, st.sampled_from(FAULTS)), max_size=6))
def test_every_name_has_the_first_loaded_plugin_that_claims_it(
    plugins_made: list[tuple[dict[str, list[str]], str]],
) -> None:
    plugins = Plugins()
    owners: dict[tuple[str, str], int] = {}

    def there() -> dict[str, set[str]]:
        return {
            "sources": set(plugins.sources),
            "transports": set(plugins.transports),
            "servers": set(plugins.servers),
            "envelope_kinds": set(plugins.envelope_kinds.sources) - {"local"},
        }

    for index, (claimed, fault) in enumerate(plugins_made):
        made = [(kind, name) for kind, names in claimed.items() for name in names]
        good = fault == "none" and len(set(made)) == len(made) and not owners.keys() & set(made)
        before = there()
        try:
            plugins.register(make(claimed, fault), f"p{index}")
        except PluginError:
            assert not good
            assert plugins.records[-1].status != "loaded"
            assert plugins.records[-1].error
            assert there() == before
        else:
            assert good
            owners.update(dict.fromkeys(made, index))
    loaded = [record for record in plugins if record.status == "loaded"]
    for kind, names in there().items():
        assert sorted(names) == sorted(name for record in loaded for name in record.contributes.get(kind, ()))
        assert names == {name for owned, name in owners if owned == kind}
    offering = ["sources" in claimed for claimed, _ in plugins_made]
    kept = [offers for offers, record in zip(offering, plugins, strict=True) if record in loaded]
    assert len(plugins.implementations("operad_sources")) == sum(kept)
