"""What an address is called on a NATS server."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad.plugin import TransportError
from operad_nats._subjects import subject_of, token

SAFE = re.compile(r"[A-Za-z0-9_%~=-]+(\.[A-Za-z0-9_%~=-]+)*")
ids = st.text(st.characters(), min_size=1, max_size=400)


def subject(address: str) -> str:
    return subject_of(address, "operad", "_INBOX")


@given(ids)
def test_any_id_becomes_a_subject_without_wildcards_or_empty_tokens(operation_id: str) -> None:
    for kind in ("op", "all"):
        result = subject(f"{kind}:{operation_id}")
        assert SAFE.fullmatch(result)
        assert len(result) < 500


@given(ids, ids)
def test_different_ids_have_different_subjects(one: str, other: str) -> None:
    assert (subject(f"op:{one}") == subject(f"op:{other}")) is (one == other)
    assert (token(one) == token(other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a.b.c", "a.b%2Ec"), ("a.b", "a.b."), ("ab", "a.b"), ("a.*", "a.%2A"), ("x" * 500, "x" * 501)],
)
def test_ids_that_encodings_like_to_confuse_stay_apart(one: str, other: str) -> None:
    assert subject(f"op:{one}") != subject(f"op:{other}")


def test_the_namespace_is_a_token_of_its_own() -> None:
    assert subject("op:github.pulls/create") == "operad.op.github.pulls%2Fcreate"
    assert subject("op:a.b.c") == "operad.op.a.b%2Ec"


@pytest.mark.parametrize(
    "address",
    ["", "op:", "all:", "inbox:", "inbox:>", "inbox:*", "inbox:a..b", "inbox:a b", "inbox:a\r\nPUB x 0",
     "inbox:$SYS.REQ", "elsewhere:x", "inbox:" + "a" * 65, "inbox:ü"],
)  # fmt: skip
def test_an_address_that_a_peer_made_up_is_refused(address: str) -> None:
    with pytest.raises(TransportError, match="expected an address"):
        subject(address)
