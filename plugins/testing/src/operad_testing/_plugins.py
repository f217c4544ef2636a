"""`PluginConformance`: requirements for every installed plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, EntryPoint, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from operad import PluginRecord, Plugins, load_plugins
from operad_testing._examples import equal, skip

_PROBE = """
import builtins, contextlib, io, json, sys
from operad import load_plugins
load_plugins(only=[])
before = set(sys.modules)
imports = []
really_import = builtins.__import__

def noted(name, globals=None, locals=None, fromlist=(), level=0):
    imports.append([str((globals or {}).get("__name__")), name])
    return really_import(name, globals, locals, fromlist, level)

builtins.__import__ = noted
printed = io.StringIO()
with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
    plugins = load_plugins(only=[sys.argv[1]], strict=True)
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "imports": imports,
    "printed": printed.getvalue(),
    "names": [record.name for record in plugins if record.status == "loaded"],
}))
"""


class PluginConformance:
    """Requirements for every plugin. The distribution must be installed.

    ::

        class TestPlugin(PluginConformance):
            distribution = "operad-pigeons"
            contributes = {"sources": ["pigeons"], "envelope_kinds": ["pigeon"]}
    """

    distribution: ClassVar[str]
    """The name of the distribution."""
    contributes: ClassVar[Mapping[str, Sequence[str]]]
    """The contributions of the plugin, as in `PluginRecord.contributes`."""
    light: ClassVar[Sequence[str]] = ()
    """Modules of other distributions that loading the plugin may import, because they are small."""

    def test_the_entry_point_is_there(self) -> None:
        """The distribution has an entry point in the group ``operad``."""
        assert self._entry_point().value, "the entry point names no module"

    def test_the_plugin_loads(self) -> None:
        """The plugin loads, and its contributions are those declared."""
        record = self._record()
        assert record.status == "loaded", record.error
        equal(_sorted(record.contributes), _sorted(self.contributes), "what it contributes")

    def test_the_record_names_its_origin(self) -> None:
        """The `PluginRecord` has the distribution's name and version."""
        metadata = self._distribution().metadata
        record = self._record()
        equal((record.distribution, record.version), (metadata["Name"], metadata["Version"]), "name and version")

    def test_two_applications_can_load_it(self) -> None:
        """Loading the plugin twice in one process gives equal records."""
        equal(self._plugins().records, self._plugins().records, "the records of a second load")

    def test_loading_imports_nothing_heavy(self) -> None:
        """Loading the plugin imports only its own package, operad, the standard library and `light`."""
        own = {self._entry_point().value.partition(":")[0].partition(".")[0], "operad"}
        allowed = own | set(self.light) | set(sys.stdlib_module_names)
        probe = self._probe()
        heavy = {module.partition(".")[0] for module in probe["modules"]} - allowed
        pairs = [(by.partition(".")[0], name.partition(".")[0]) for by, name in probe["imports"]]
        # Name only direct imports: listing those of other modules would hide the cause.
        direct = {name for by, name in pairs if name in heavy and by in allowed} or heavy
        assert not heavy, f"import {', '.join(sorted(direct))} inside the function that needs it"

    def test_loading_prints_nothing(self) -> None:
        """Loading the plugin writes nothing to stdout or stderr."""
        equal(self._probe()["printed"], "", "what loading prints")

    def test_it_requires_operad(self) -> None:
        """The distribution requires ``operad`` and states its versions."""
        requires = [line.replace(" ", "") for line in self._distribution().requires or ()]
        mine = [
            line for line in requires if line.startswith(("operad>", "operad<", "operad=", "operad~", "operad("))
        ]
        assert mine, 'add "operad>=…" to the dependencies of your pyproject.toml'

    def test_it_is_typed(self) -> None:
        """The package contains ``py.typed`` (PEP 561)."""
        package = self._entry_point().value.partition(":")[0].partition(".")[0]
        found = find_spec(package)
        assert found is not None, f"{package} cannot be imported"
        if found.submodule_search_locations is None:
            skip("a single module cannot carry py.typed")
        assert any((Path(folder) / "py.typed").is_file() for folder in found.submodule_search_locations), (
            f"put an empty file py.typed into {package}"
        )

    def _distribution(self) -> Distribution:
        return distribution(self.distribution)

    def _entry_point(self) -> EntryPoint:
        points = [point for point in self._distribution().entry_points if point.group == "operad"]
        assert points, f'{self.distribution}: add [project.entry-points.operad] name = "module" to pyproject.toml'
        return points[0]

    def _plugins(self) -> Plugins:
        return load_plugins(only=[self.distribution])

    def _record(self) -> PluginRecord:
        name = self._entry_point().name
        return next(
            record
            for record in self._plugins()
            if record.name == name and record.distribution == self._distribution().metadata["Name"]
        )

    def _probe(self) -> dict[str, Any]:
        command = [sys.executable, "-c", _PROBE, self.distribution]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def _sorted(contributes: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {kind: sorted(names) for kind, names in sorted(contributes.items())}
