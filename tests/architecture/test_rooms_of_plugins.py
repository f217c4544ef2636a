"""The rooms inside a plugin and the direction of imports between them. A breach is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import rooms

PLUGINS = Path(__file__).parents[2] / "plugins"

ORDER: dict[str, tuple[tuple[str, ...], ...]] = {
    "cli": (("main",), ("app",), ("commands",), ("demo", "running", "stubs"), ("completion",), ("output",)),
    "mcp": (("plugin", "source", "serving"), ("client", "hosts", "server"), ("wire",), ("auth",)),
}
"""For each plugin its rooms, the highest first; modules that are not named are below all of them."""


def climbs(order: tuple[tuple[str, ...], ...], found: dict[str, Path]) -> list[str]:
    """Return the imports from a room above, or from another room of the same height."""

    def place(module: str) -> tuple[int, str]:
        name = [*module.split("."), ""][1]
        height = next((len(order) - at for at, level in enumerate(order) if name in level), 0)
        return height, name if height and height < len(order) else ""

    return [
        f"{name}:{line} imports {target}"
        for name, target, line in rooms.imports(found)
        if "." in name
        and (
            place(target)[0] > place(name)[0]
            or (place(target)[0] == place(name)[0] and place(target) != place(name))
        )
    ]


@pytest.mark.parametrize("plugin", ORDER)
def test_modules_of_a_plugin_import_from_their_own_room_and_those_below(plugin: str) -> None:
    found = rooms.modules(PLUGINS / plugin / "src")
    named = {name for level in ORDER[plugin] for name in level}
    assert named <= {name.split(".")[1] for name in found if "." in name}
    assert climbs(ORDER[plugin], found) == []


@pytest.mark.parametrize(
    ("importer", "imported"), [("wire", "client"), ("config", "wire"), ("hosts", "client"), ("auth", "source")]
)
def test_a_planted_import_from_a_room_above_or_beside_is_found(
    tmp_path: Path, importer: str, imported: str
) -> None:
    for room, text in ((importer, f"def f():\n    from operad_mcp.{imported} import x"), (imported, "")):
        (tmp_path / "operad_mcp" / room).mkdir(parents=True)
        (tmp_path / "operad_mcp" / room / "__init__.py").write_text(text)
    assert climbs(ORDER["mcp"], rooms.modules(tmp_path)) == [
        f"operad_mcp.{importer}:2 imports operad_mcp.{imported}"
    ]
