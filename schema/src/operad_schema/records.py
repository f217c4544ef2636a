"""The records of the package: errors, changes, and origins of schemas."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import attrs

from operad_schema.limits import Limits

Mode = Literal["cast", "complete", "keep"]
"""How to cast. Every mode converts values and fills in declared defaults.

`cast` also drops undeclared properties. `complete` does the same and adds zero values for missing required
properties. `keep` does neither.
"""


@attrs.frozen
class SchemaError:
    """One error of a value.

    `path` is the place of the error, such as `$.items[3].id`. `keyword` is the JSON Schema keyword that failed (or
    the exceeded limit, `false` for the schema `false`, or empty if not known). `expected` and `got` are short
    texts, which `message` combines with the path: `expected integer, got str at $.items[3].id`.
    """

    path: str
    message: str
    keyword: str
    expected: str
    got: str


@attrs.frozen
class Change:
    """A change that a cast made at `path`. A dropped part has None as `after`, a filled-in part as `before`."""

    path: str
    action: Literal["dropped", "filled", "converted"]
    before: Any
    after: Any


class Origin(NamedTuple):
    """A schema, its document, its location in the document, and the options with which it is read.

    If `pointer` is empty, the schema is not in its `document`, but its references point into the document.
    """

    raw: Any
    dialect: str | None
    document: Any
    pointer: str
    limits: Limits
    formats: bool = False
    unchecked: bool = False
    """Whether patterns that cannot be run in linear time are run anyway."""
