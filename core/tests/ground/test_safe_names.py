"""Names for places that take identifiers only."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from operad import from_schema
from operad.names import safe_names

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,49}")


def test_a_name_that_fits_is_the_id_with_underscores_and_a_long_one_ends_in_a_hash() -> None:
    long = "github.actions/" + "a" * 60
    names = safe_names({id: id for id in ("demo.add", "9.x", long)})
    assert list(names.values()) == ["demo.add", "9.x", long]
    assert list(names)[:2] == ["demo_add", "_9_x"]
    assert re.fullmatch(r"github_actions_a{26}_[0-9a-f]{8}", list(names)[2])
    assert list(safe_names({"a" * 50: "a" * 50})) == ["a" * 50]
    assert list(safe_names({"a1": "a1", "_a": "_a"})) == ["a1", "_a"]


def test_ids_that_would_share_a_name_both_have_a_hash_so_that_no_name_changes_hands() -> None:
    before = safe_names({"a.b": "a.b"})
    after = safe_names({"a.b": "a.b", "a/b": "a/b"})
    assert list(before) == ["a_b"]
    assert "a_b" not in after
    assert sorted(after.values()) == ["a.b", "a/b"]


@given(st.lists(st.text(min_size=1), unique=True, max_size=20))
def test_every_id_has_a_name_of_its_own_that_leads_back(ids: list[str]) -> None:
    names = safe_names({id: id for id in ids})
    assert list(names.values()) == ids
    assert all(NAME.fullmatch(name) for name in names)


def test_a_schema_is_published_as_it_was_given_where_it_stands_for_itself() -> None:
    own = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "x-own": 1}
    assert from_schema(own).published() is own
    document = {"components": {"schemas": {"Pet": {"type": "object", "nullable": True}}}}
    pet = from_schema({"$ref": "#/components/schemas/Pet"}, dialect="openapi-3.0", document=document)
    assert "#/components" not in str(pet.published())
    assert from_schema({"type": "string", "nullable": True}, dialect="openapi-3.0").published() == {
        "type": ["string", "null"]
    }
