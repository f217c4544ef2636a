"""The pages that are written from the code say what the code says."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def references() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_references", ROOT / "tools" / "references.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_written_pages_are_up_to_date(references: ModuleType) -> None:
    for name, text in references.files().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"{name}: run tools/references.py"


def test_the_schema_for_editors_takes_what_the_readme_writes_and_refuses_misspelt_keys() -> None:
    schema = json.loads((ROOT / "docs" / "operad.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = readme.partition("```toml\n")[2].partition("```")[0]
    validator.validate(tomllib.loads(example))
    assert not validator.is_valid({"registry": {"max_thread": 3}})
    assert not validator.is_valid({"sources": {"a": {"type": "openapi", "sepc": "x"}}})
