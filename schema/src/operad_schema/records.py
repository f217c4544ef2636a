"""The records of the engine: errors, changes, and where a schema comes from."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import attrs

from operad_schema.limits import Limits

Mode = Literal["cast", "complete", "keep"]
"""How to cast.

`cast` drops what is not declared and fills in declared defaults; `complete` also fills in zero values for missing
required properties; `keep` drops and invents nothing.
"""


@attrs.frozen
class SchemaError:
    """One error of a value.

    `path` is the place (`$.items[3].id`), `keyword` the JSON Schema keyword that failed, `expected` and `got`
    are short texts. `message` combines them: `expected integer, got str at $.items[3].id`.
    """

    path: str
    message: str
    keyword: str
    expected: str
    got: str


@attrs.frozen
class Change:
    """One change that a cast made at `path`. A dropped part has no `after`, a filled one no `before`."""

    path: str
    action: Literal["dropped", "filled", "converted"]
    before: Any
    after: Any


class Origin(NamedTuple):
    """The place of a schema: the schema, its document and its location in it, and how it is read.

    Without `pointer`, the schema is not in its `document`, but its references point into the document.
    """

    raw: Any
    dialect: str | None
    document: Any
    pointer: str
    limits: Limits
    formats: bool = False
    unchecked: bool = False
    """Whether patterns that cannot be checked in linear time are run anyway."""
