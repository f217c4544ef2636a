"""docs/hooks.md documents every hook, with the signature that it has and an example that loads."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from operad import Plugins, hookspecs

REFERENCE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
SECTIONS = {
    match[1]: match[2]
    for match in re.finditer(r"^### (operad_\w+)\n(.*?)(?=^##|\Z)", REFERENCE, re.DOTALL | re.MULTILINE)
}
HOOKS: dict[str, Any] = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("operad_")}


def test_every_hook_is_documented_and_nothing_else() -> None:
    assert sorted(SECTIONS) == sorted(HOOKS)


def test_every_hookspec_says_what_it_is() -> None:
    for name, hook in HOOKS.items():
        assert hook.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_the_documented_signature_is_the_real_one(hook: str) -> None:
    documented = re.search(r"`(operad_\w+)(\(.*?\) -> .*?)`", SECTIONS[hook])
    assert documented is not None
    assert documented[1] == hook
    assert documented[2] == str(inspect.signature(HOOKS[hook])).replace("'", "")


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_the_documented_example_is_a_plugin_with_that_hook(hook: str) -> None:
    code = re.search(r"^```python\n(.*?)^```", SECTIONS[hook], re.DOTALL | re.MULTILINE)
    assert code is not None
    module = ModuleType("example")
    exec(compile(code[1], f"docs/hooks.md {hook}", "exec", dont_inherit=True), vars(module))
    plugins = Plugins()
    of_the_core = len(plugins.implementations(hook))
    plugins.register(module)
    assert len(plugins.implementations(hook)) == of_the_core + 1
