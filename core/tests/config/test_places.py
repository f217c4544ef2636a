"""Messages about a configuration name the file and the line of what they are about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import ConfigError, SourceError
from operad.config.file import Configuration
from operad.config.places import Place, dotted, exactly, lines_of, parts_of, place_of
from operad.config.reading import load_configuration
from operad.config.sources import check_keys

TABLES = json.loads(Path(__file__).with_name("file.json").read_text("utf-8"))


DEEP = ("a = " + "[" * 5_000, "cannot be read as TOML: it is nested too deeply")


def reading(folder: Path, data: bytes) -> str:
    """Return the message about a configuration that cannot be read."""
    (folder / "operad.toml").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_configuration(folder)
    return str(caught.value)


TEXT = """\
top = 1
[ sources . shop ]
path = 'x'
"a.b".c = 2
[sources."a b"]
[sources.'ü.x']
  'key' = 1
[[rules]]
[[rules]]
text = \"\"\"
[no]
\"\"\"
"""


def test_every_table_and_key_has_the_line_on_which_it_is_first() -> None:
    found = lines_of(TEXT, "f.toml")
    assert set(found.values()) == {("f.toml", line) for line in (*range(1, 9), 10, 11)}
    assert {name: line for name, (_, line) in found.items()} == {
        "top": 1, "sources.shop": 2, "sources.shop.path": 3, 'sources.shop."a.b".c': 4, 'sources."a b"': 5,
        'sources."ü.x"': 6, 'sources."ü.x".key': 7, "rules": 8, "rules.text": 10, "no": 11,
    }  # fmt: skip
    tool = "[tool.operad]\na = 1\n[tool.operad.calls]\nb = 1\n"
    assert list(lines_of(tool, "pyproject.toml")) == ["tool.operad", "a", "calls", "calls.b"]


@pytest.mark.parametrize(
    ("parts", "name"), [(["a", "b-c_1"], "a.b-c_1"), (["a b", "c"], '"a b".c'), (["x.y"], '"x.y"'), (["ü"], '"ü"')]
)
def test_a_name_is_written_as_toml_writes_it(parts: list[str], name: str) -> None:
    assert dotted(*parts) == name
    assert parts_of(name) == parts


@pytest.mark.parametrize(
    ("name", "line"),
    [("sources.shop", 2), ("sources.shop.path", 3), ("sources.shop.other", 2), ("sources", 2), ("other", None)],
)
def test_what_has_no_line_of_its_own_has_that_of_its_first_part_or_of_the_table_around_it(
    name: str, line: int | None
) -> None:
    assert place_of(name, lines_of(TEXT, "f.toml")) == (None if line is None else ("f.toml", line))


@pytest.mark.parametrize(
    ("message", "exact"),
    [
        ("wrong @ f.toml:2: sources.shop.path", "wrong @ f.toml:3: sources.shop.path"),
        ("wrong @ f.toml:2: sources['a b'][0]", "wrong @ f.toml:5: sources['a b'][0]"),
        ('unknown key "path" @ f.toml:2: sources.shop', 'unknown key "path" @ f.toml:3: sources.shop'),
        ("wrong @ f.toml:9: other.path", "wrong @ f.toml:9: other.path"),
    ],
)
def test_a_message_gets_the_line_of_the_key_that_it_is_about(message: str, exact: str) -> None:
    assert exactly(Place.of("sources.shop", lines_of(TEXT, "f.toml"), "f.toml"), message) == exact
    assert exactly("f.toml", message) == message


@attrs.frozen
class Rule:
    id: str


def configured(folder: Path, text: str) -> Configuration:
    (folder / "operad.toml").write_text(text, encoding="utf-8")
    return load_configuration(folder)


def test_the_place_of_a_table_is_added_to_an_error_that_does_not_name_the_file(tmp_path: Path) -> None:
    made = configured(tmp_path, '\n[serve]\n[serve.mcp]\n[sources."a.b"]\ntype = "t"\n')
    assert made.where("serve.mcp") == "operad.toml:3: serve.mcp"
    assert made.where("sources", "a.b") == 'operad.toml:4: sources."a.b"'
    error = made.placed(SourceError("why"), "sources", "a.b")
    assert (type(error), str(error)) == (SourceError, 'why @ operad.toml:4: sources."a.b"')
    named = ConfigError("why @ operad.toml:7: serve")
    assert made.placed(named, "serve") is named
    assert Configuration(tmp_path).placed(named, "serve") is named
    assert str(made.placed(ConfigError("why"), "calls")) == "why @ operad.toml: calls"


def test_tables_that_may_occur_several_times_are_read_in_their_order_and_told_apart_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ID", "b")
    made = configured(tmp_path, '[[rules]]\nid = "a"\n[[rules]]\nid = "${ID}"\n')
    assert made.array("rules", Rule) == [Rule("a"), Rule("b")]
    assert made.array("credentials", Rule) == []
    with pytest.raises(ConfigError, match=r"operad.toml:1: rules \(number 2\)"):
        configured(tmp_path, '[[rules]]\nid = "a"\n[[rules]]\nid = 1\n').array("rules", Rule)


@pytest.mark.parametrize(("data", "words"), [*TABLES["files_that_cannot_be_read"], DEEP], ids=range(14))
def test_a_file_that_cannot_be_read_is_named_with_the_line_and_the_fix(
    tmp_path: Path, data: str, words: str
) -> None:
    assert words in reading(tmp_path, data.encode("latin-1"))


def test_a_source_without_a_type_that_has_other_keys_is_not_taken_for_a_name_with_a_dot(tmp_path: Path) -> None:
    assert "dot" not in reading(tmp_path, b"[sources.a]\nx = 1\n[sources.a.b]\n")


def test_all_mistakes_of_a_table_are_told_at_once() -> None:
    options: Any = attrs.make_class("Options", {"size": attrs.field(type=int), "note": attrs.field(type=str)})
    with pytest.raises(ConfigError) as caught:
        check_keys(options, {"size": "1", "sise": 1, "note": "x"}, "here")
    told = str(caught.value).split("; ")
    mistakes = ['unknown key "sise"', 'did you mean "size"? @ here', "expected an integer, got a string"]
    assert told[:3] == mistakes
    assert "note" not in str(caught.value)
    check_keys(options, {"note": "x"}, "here")
