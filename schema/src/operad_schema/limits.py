"""The limits on schemas, values and work. Errors, warnings and the configuration use the names of the limits."""

from __future__ import annotations

import math

import attrs


@attrs.frozen
class Limits:
    """The limits on the size of schemas and values, and on the work for one value.

    Every limit is an integer of at least 1, or `math.inf`. Any other value raises `ValueError`.
    """

    max_schema_bytes: int = 1024 * 1024
    """The approximate size in bytes, as JSON without annotations, of a schema and everything that it refers to."""
    max_schema_nodes: int = 20_000
    """The number of subschemas in a schema and everything that it refers to; a larger schema accepts any value."""
    max_schema_depth: int = 64
    """The levels of nested subschemas, and of a `default`, `const` or `enum` value."""
    max_schema_in_place: int = 10_000
    """The number of subschemas that apply to the same value; a schema with more accepts any value."""
    max_schema_enum: int = 5_000
    """The number of members of one `enum`; a larger `enum` is ignored."""
    max_schema_indexed: int = 100_000
    """The number of nodes of a document that are searched for `$id` and anchors."""
    max_pattern_length: int = 1_024
    """The length of a pattern in characters; a longer pattern is not checked."""
    max_pattern_string: int = 4_096
    """The length in characters of text on which `Schema.running_unchecked` runs patterns; longer text fails."""
    max_pattern_steps: int = 200_000_000
    """The steps that the patterns of one call may take in the worst case, each about 5 ns; a value that takes more
    is invalid.
    """
    max_check_steps: int = 30_000
    """The number of schemas that one call may apply to a value, in addition to 15 for each part of the value; a
    value that needs more is invalid. Schemas are counted only if more than 64 can apply to one part.
    """
    max_data_depth: int = 200
    """The levels of arrays and objects in a value for a recursive schema; a deeper value is invalid, not cast."""
    max_fill: int = 10_000
    """The number of parts of one default or zero value; a larger value is not filled in."""
    max_filled: int = 10_000
    """The number of parts that zero values and structured defaults may add in one call; the others stay absent."""
    max_recasts: int = 100
    """The number of times that unions may cast a value again, by another branch, in one call."""
    max_schema_errors: int = 20
    """The number of errors that are collected for one value."""
    max_error_steps: int = 20_000
    """The number of subschemas that the search for the errors of one value applies; the search then ends."""

    def __attrs_post_init__(self) -> None:
        for bound in attrs.fields(Limits):
            value = getattr(self, bound.name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole or value == math.inf) or value < 1:
                raise ValueError(f"{bound.name}: expected a whole number of at least 1 or inf, got {value!r:.80}")

    def trusting(self) -> Limits:
        """Return a copy with no limit on a schema's bytes, nodes, in-place subschemas and enums."""
        unbounded: int = math.inf  # type: ignore[assignment]  # compared with, never counted to
        return attrs.evolve(
            self,
            max_schema_bytes=unbounded,
            max_schema_nodes=unbounded,
            max_schema_in_place=unbounded,
            max_schema_enum=unbounded,
        )


DEFAULT = Limits()
