"""The check of published schemas against the meta-schema of their draft, with jsonschema."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from operad import OperationSpec

MOST_SHOWN = 5
"""The maximum number of wrong schemas that are reported. Further ones are only counted."""
LONGEST_MESSAGE = 200
"""The maximum length of an error message in characters, because jsonschema may repeat a whole schema in it."""
LARGEST = 100_000
"""The largest schema that is checked, in characters of JSON. A larger one could take seconds."""


class Unchecked(Exception):  # a reason, not an error
    """The error for schemas that were not checked. Its message states how many, and why."""


def errors_of_schemas(specs: Iterable[OperationSpec], seconds: float) -> Iterator[tuple[str, str]]:
    """Yield an operation id and a message for each schema that is not valid.

    Schemas may come from untrusted documents, so their size is limited, and no check starts after ``seconds``.

    Raises:
        ModuleNotFoundError: jsonschema is not installed.
        Unchecked: schemas were too large, too deep, or too late to be checked. It is raised after the last item.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    until, left_out = time.monotonic() + seconds, 0
    seen: set[str] = set()
    for spec in specs:
        for key, schema in _published(spec):
            try:
                text = json.dumps(schema, sort_keys=True)
                if text in seen:
                    continue
                if len(text) > LARGEST or time.monotonic() > until:
                    left_out += 1
                    continue
                seen.add(text)
                judge = validator_for(schema, default=Draft202012Validator)
                error = best_match(judge(judge.META_SCHEMA).iter_errors(schema))
            except RecursionError:
                left_out += 1
                continue
            if error is not None:
                yield spec.id, f"{key} at {error.json_path}: {error.message[:LONGEST_MESSAGE]}"
    if left_out:
        limits = f"{LARGEST:,} characters for each schema, {seconds:g} s for all, see --timeout"
        raise Unchecked(f"schemas that were not checked: {left_out} ({limits})")


def _published(spec: OperationSpec) -> Iterator[tuple[str, Any]]:
    yield "input_schema", spec.input_schema.published()
    yield "output_schema", spec.output_schema.published()
    for error in spec.error_schemas:
        yield f"error_schemas[{error.code}]", error.schema.published()
