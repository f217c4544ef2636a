"""What an address is called on a Redis server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad.plugin import TransportError
from operad_calls.transport import protocol
from operad_redis._connection import pack
from operad_redis._keys import Keys

ids = st.text(st.characters(), min_size=1, max_size=800)
KEYS = Keys("bus")


@given(ids)
def test_any_id_becomes_a_short_ascii_key_in_the_slot_of_its_bus(operation_id: str) -> None:
    """The first braces decide the slot, so an id must bring none of its own before them; it brings none at all."""
    for key in (KEYS.operation(f"op:{operation_id}"), KEYS.channel(f"all:{operation_id}")):
        assert key.startswith("operad:{bus}:")
        assert key.isascii()
        assert len(key) < 600
        assert not set(" \r\n{}") & set(key.removeprefix("operad:{bus}:"))


@given(ids, ids)
def test_different_ids_have_different_keys(one: str, other: str) -> None:
    assert (KEYS.operation(f"op:{one}") == KEYS.operation(f"op:{other}")) is (one == other)


def test_a_command_with_a_text_in_parts_is_the_one_with_the_text() -> None:
    parts = protocol.Parts(b"one", memoryview(b" and two, ")[4:8], b"")
    assert pack("PUBLISH", "channel", parts, 1) == pack("PUBLISH", "channel", b"one two", 1)


def test_keys_can_be_read() -> None:
    assert KEYS.operation("op:github.pulls/create") == "operad:{bus}:op:github.pulls/create"


@pytest.mark.parametrize(
    "address",
    ["", "op:x", "all:", "inbox:", "inbox:*", "inbox:a b", "inbox:a:b", "elsewhere:x", "inbox:" + "a" * 65, "inbox:ü"],
)  # fmt: skip
def test_an_address_that_a_peer_made_up_is_refused(address: str) -> None:
    with pytest.raises(TransportError, match="expected an address"):
        KEYS.channel(address)
