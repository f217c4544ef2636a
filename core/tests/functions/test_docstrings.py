"""Descriptions of parameters from docstrings."""

from __future__ import annotations

from typing import Annotated, Any

from operad import OperationContext, operation


def properties(made: Any) -> dict[str, Any]:
    """The schemas of the parameters of an operation."""
    found: dict[str, Any] = made.spec.input_schema.bundled()["properties"]
    return found


def test_the_section_args_describes_parameters_and_leaves_the_description() -> None:
    @operation(namespace="shop")
    async def find(
        words: str, context: OperationContext, limit: int = 10, sort: Annotated[str, "The order."] = ""
    ) -> str:
        """Find books.

        Ranked by how well they fit.

        Args:
            words: what to look for: title,
                author or both.
            limit (int): how many books to return.
            sort: not this one.
            context: of the call.

        Returns:
            The ids.
        """
        return words

    assert find.spec.description == "Find books.\n\nRanked by how well they fit.\n\nReturns:\n    The ids."
    fields = properties(find)
    assert fields["words"]["description"] == "what to look for: title, author or both."
    assert fields["limit"] == {"type": "integer", "default": 10, "description": "how many books to return."}
    assert fields["sort"]["description"] == "The order."


def test_a_section_that_describes_no_parameter_stays() -> None:
    @operation(namespace="shop")
    async def other(a: int) -> int:
        """Do it.

        Args:
            something else altogether
        """
        return a

    assert "something else altogether" in other.spec.description
    assert "description" not in properties(other)["a"]


def test_a_description_that_is_given_is_read_in_the_same_way_and_a_docstring_may_be_its_section_alone() -> None:
    @operation(namespace="shop", description="Add.\n\nArgs:\n    a: the first\n")
    async def add(a: int) -> int:
        """Args:
        a: nothing
        """
        return a

    @operation(namespace="shop")
    async def bare(a: int) -> int:
        """
        Args:
            a: the only one
        """
        return a

    assert (add.spec.description, properties(add)["a"]["description"]) == ("Add.", "the first")
    assert (bare.spec.description, properties(bare)["a"]["description"]) == ("", "the only one")
