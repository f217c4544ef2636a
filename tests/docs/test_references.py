"""The pages that are written from the code say what the code says."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema

from tools import references

ROOT = Path(__file__).parents[2]


def test_the_written_pages_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "references.py", tmp_path], check=True, timeout=120)
    for fresh in [path for path in tmp_path.rglob("*") if path.is_file()]:
        name = fresh.relative_to(tmp_path)
        written = (ROOT / name).read_text(encoding="utf-8")
        assert written == fresh.read_text(encoding="utf-8"), f"{name}: run tools/references.py"


def test_the_api_reference_tells_of_every_public_name_how_it_is_called_and_what_it_means() -> None:
    for page in sorted((ROOT / "docs" / "api").glob("operad*.md")):
        told = page.read_text(encoding="utf-8").partition("\n## ")[2]
        entries = [entry.partition("\n") for entry in told.split("\n## ")]
        assert [name for name, _, _ in entries] == importlib.import_module(page.stem).__all__
        assert [name for name, _, text in entries if not text.strip()] == []
    text = (ROOT / "docs" / "api" / "operad.md").read_text(encoding="utf-8")
    assert "\nasync execute(\n" in text
    assert "\n- `retry`: call again until the deadline" in text


def test_every_key_of_every_table_is_in_the_reference_with_what_it_means_and_in_the_schema_for_editors() -> None:
    page = (ROOT / "docs" / "configuration-reference.md").read_text(encoding="utf-8")
    sections = dict(section.split("\n", 1) for section in page.split("\n## ")[1:])
    schema = json.loads((ROOT / "docs" / "operad.schema.json").read_text(encoding="utf-8"))
    kinds = {
        kind["properties"]["type"].get("const"): kind
        for kind in schema["properties"]["sources"]["additionalProperties"]["oneOf"]
    }
    found = references.tables()
    assert {"calls", "serve", "hub", "registry", "plugins"} <= found.keys()
    for title, (cls, _) in [
        *found.items(),
        *((name, (cls, "")) for cls, name in references._homes(found).items()),
    ]:
        section = sections.get(f"[{title}]", sections.get(title, ""))
        for field in references.options(title, cls):
            line = next((line for line in section.splitlines() if line.startswith(f"| `{field.alias}` |")), "")
            assert line, f"{title}: {field.alias} is not in the reference"
            assert line.split(" | ")[-1].strip(" |"), f"{title}: {field.alias} has no text below its field"
    for title, (cls, _) in found.items():
        if title.startswith("sources.<name>, type"):
            part = kinds[title.split('"')[1]]
        elif title == "sources.<name>":
            part = kinds["scanner"]
        elif title.startswith("serve."):
            part = schema["properties"]["serve"]["properties"][title[6:]]
            part = part.get("anyOf", [part])[-1]
        else:
            part = schema["properties"][title.partition(",")[0]]
        names = {field.alias for field in references.options(title, cls)}
        assert names <= part["properties"].keys(), title


def test_the_schema_for_editors_takes_what_the_readme_writes_and_refuses_misspelt_keys() -> None:
    schema = json.loads((ROOT / "docs" / "operad.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = readme.partition("```toml\n")[2].partition("```")[0]
    validator.validate(tomllib.loads(example))
    assert not validator.is_valid({"registry": {"max_thread": 3}})
    assert not validator.is_valid({"sources": {"a": {"type": "openapi", "sepc": "x"}}})
    assert not validator.is_valid({"hub": {"listn": "x"}})
    assert not validator.is_valid({"calls": {"timeout": []}})
    validator.validate({"sources": {"a": {"type": "grpc", "target": "x"}}, "transport": {"url": "x://", "y": 1}})
    validator.validate(
        {"serve": {"http": "127.0.0.1:0", "mcp": {"stdio": True}, "tokens": [{"token": "a", "id": "b"}]}}
    )
