"""The limits of the engine. Each has a name that errors, warnings and the configuration use."""

from __future__ import annotations

import math

import attrs


@attrs.frozen
class Limits:
    """The limits of a schema, a value and the work between them. Every limit is an integer of at least 1.

    Raises `ValueError` for any other value.
    """

    max_schema_bytes: int = 1024 * 1024
    """The size in bytes of a schema with everything that it reaches, as JSON without annotations."""
    max_schema_nodes: int = 20_000
    """The number of subschemas of a schema with everything that it reaches."""
    max_schema_depth: int = 64
    """The levels of nested subschemas, and of a `default`, `const` or `enum` value."""
    max_schema_in_place: int = 10_000
    """The number of subschemas that apply to the same value."""
    max_schema_enum: int = 5_000
    """The number of members of one `enum`."""
    max_schema_indexed: int = 100_000
    """The number of nodes of a document that are searched for `$id` and anchors."""
    max_pattern_length: int = 1_024
    """The length of a pattern in characters."""
    max_pattern_string: int = 4_096
    """The length in characters of a string that an unchecked pattern is run on; a longer one does not match."""
    max_pattern_steps: int = 200_000_000
    """The steps that the patterns of one call may take in the worst case, each about 5 ns; a value that takes more
    is invalid.
    """
    max_check_steps: int = 30_000
    """The number of schemas that one call may apply to a value, in addition to 15 for each part of it; a value
    that needs more is invalid. Counted only if one part can meet more than 64 schemas.
    """
    max_data_depth: int = 200
    """The levels of arrays and objects of a value that are checked and cast."""
    max_fill: int = 10_000
    """The number of parts of one default or zero value; a larger one is not filled in."""
    max_filled: int = 10_000
    """The number of parts that zero values and structured defaults may add in one call; the rest stays absent."""
    max_recasts: int = 100
    """How often unions may change the branch of a value that they have cast, in one call."""
    max_schema_errors: int = 20
    """The number of errors that are collected for one value."""
    max_error_steps: int = 20_000
    """The number of subschemas that the search for errors applies to parts of one value; then it ends."""

    def __attrs_post_init__(self) -> None:
        for bound in attrs.fields(Limits):
            value = getattr(self, bound.name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole or value == math.inf) or value < 1:
                raise ValueError(f"{bound.name}: expected a whole number of at least 1, got {value!r}")

    def trusting(self) -> Limits:
        """Return the same limits without those on the size of a schema, for your own documents."""
        unbounded: int = math.inf  # type: ignore[assignment]  # compared with, never counted to
        return attrs.evolve(
            self,
            max_schema_bytes=unbounded,
            max_schema_nodes=unbounded,
            max_schema_in_place=unbounded,
            max_schema_enum=unbounded,
        )


DEFAULT = Limits()
