"""The tables of the tests, which are JSON files beside them."""

import json
from pathlib import Path
from typing import Any


def tables(name: str) -> Any:
    """Return the content of a JSON file."""
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8"))
