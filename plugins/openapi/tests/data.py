"""Documents, tables of cases, and values that occur in many tests."""

import json
from pathlib import Path

NOWHERE = "http://127.0.0.1:1"
JSON = "application/json"
FORM = "multipart/form-data"
GET = {"get /x": {"operationId": "x"}}
TEXT = {"type": "string"}
TABLES, DOCUMENTS = (
    json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8")) for name in ("tables", "documents")
)


def configured(folder, document, *options, name="api"):
    """Write a document, and a configuration whose one source is it, with these lines of options."""
    (folder / "api.json").write_text(json.dumps(document))
    lines = (f"[sources.{name}]", 'type = "openapi"', 'spec = "api.json"', *options)
    (folder / "operad.toml").write_text("\n".join(lines))
