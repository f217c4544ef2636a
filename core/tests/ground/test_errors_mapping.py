"""Errors: what an exception becomes, what of it may leave the process, and that details are always JSON."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad import CallError, ErrorCode, ErrorDefinition, map_error
from operad.failures import mask_error, operation_not_found, out_of_handler
from operad.words import json_safe

DECLARED = (ErrorDefinition("NotFound"), ErrorDefinition("RATE_LIMIT", schema={"required": ["retryAfter"]}))


class NotFound(Exception):
    pass


class VeryNotFound(NotFound):
    pass


class Coded(Exception):
    def __init__(self, code: Any, details: Any = None) -> None:
        super().__init__("it has a code")
        self.code = code
        self.details = details


class Nasty(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError("no code for you")

    details = code

    def __str__(self) -> str:
        raise RuntimeError("no words for you")


def test_a_call_error_is_itself() -> None:
    error = CallError("NotFound", "x")
    assert map_error(error, DECLARED) is error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), "NotFound"),
        (VeryNotFound("x"), "NotFound"),
        (Coded("RATE_LIMIT"), "RATE_LIMIT"),
        (Coded("rate_limit"), "EXECUTION_ERROR"),
        (ValueError("hit RATE_LIMIT, wait"), "RATE_LIMIT"),
        (ValueError("hit RATE_LIMITS"), "EXECUTION_ERROR"),
        (ValueError("X_RATE_LIMIT"), "EXECUTION_ERROR"),
        (ValueError("NotFound: it"), "NotFound"),
        (NotFound("RATE_LIMIT"), "NotFound"),
        (ValueError("else"), "EXECUTION_ERROR"),
        (Nasty(), "EXECUTION_ERROR"),
        (SystemExit(1), "UNKNOWN_ERROR"),
        (asyncio.CancelledError(), "ABORTED"),
    ],
)
def test_the_order_in_which_a_code_is_found(error: BaseException, code: str) -> None:
    mapped = map_error(error, DECLARED)
    assert mapped.code == code
    assert mapped.__cause__ is error


def test_a_type_goes_before_a_word_whatever_the_order_of_declaration() -> None:
    assert map_error(NotFound("RATE_LIMIT"), DECLARED[::-1]).code == "NotFound"


@pytest.mark.parametrize(("details", "warns"), [({"retryAfter": 3}, False), ({"other": 1}, True), ("text", False)])
def test_details_of_a_declared_error_are_kept_and_checked(
    caplog: pytest.LogCaptureFixture, details: Any, warns: bool
) -> None:
    assert map_error(Coded("RATE_LIMIT", details), DECLARED).details == details
    assert ("do not match its schema, and are sent unchanged: " in caplog.text) is warns


def test_an_exception_without_words_is_named_by_its_type() -> None:
    mapped = map_error(ValueError())
    assert (mapped.message, mapped.details) == ("ValueError", {"message": "ValueError"})


# --- JSON-safe ---------------------------------------------------------------------------------------


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


odd_text = st.text(st.characters(codec=None))
simple = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
anything = st.recursive(
    simple | st.builds(Odd) | st.just(Nasty),
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner), st.dictionaries(st.one_of(odd_text, st.integers(), st.none()), inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_details_are_always_json(value: Any) -> None:
    error = CallError("X", "y", {"value": value})
    encoded = json.dumps(error.details, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert json.loads(encoded) == error.details
    assert json_safe(error.details) == error.details


def test_a_message_that_utf8_cannot_hold_is_escaped() -> None:
    assert map_error(OSError("no file '\udcff'")).message == "OSError: no file '\\udcff'"


def test_a_call_error_can_be_pickled_and_shown() -> None:
    error = CallError(ErrorCode.TIMEOUT, "late", {"deadline": 1})
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.message, again.details) == ("TIMEOUT", "late", {"deadline": 1})
    assert str(again) == "TIMEOUT: late"
    assert str(CallError("X")) == "X"
    assert error.to_wire() == {"code": "TIMEOUT", "message": "late", "details": {"deadline": 1}}
    assert CallError("X").to_wire() == {"code": "X", "message": ""}


# --- masking -----------------------------------------------------------------------------------------


def test_an_undeclared_exception_leaves_as_a_reference_that_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    masked = mask_error(map_error(ValueError("password=hunter2")), operation_id="users.login")
    assert masked.code == ErrorCode.EXECUTION_ERROR
    assert masked.details is not None
    assert "hunter2" not in str(masked.to_wire())
    reference = masked.details["reference"]
    assert reference in masked.message
    said = f"operation 'users.login' failed (reference {reference}): ValueError: password=hunter2"
    assert caplog.messages == [said]
    assert masked.__cause__ is None


def test_an_exit_leaves_as_a_reference() -> None:
    assert "hunter2" not in str(mask_error(map_error(SystemExit("hunter2"))).to_wire())


def test_what_was_declared_or_raised_on_purpose_passes() -> None:
    declared = map_error(NotFound("no such pet"), DECLARED)
    assert mask_error(declared) is declared
    try:
        raise CallError(ErrorCode.EXECUTION_ERROR, "HTTP 404", {"statusCode": 404}) from ValueError("why")
    except CallError as error:
        assert mask_error(error) is error  # noqa: PT017  # an exception with a cause is what is needed


@pytest.mark.parametrize("details", ["text", 7, ["a", 1], True, {"a": [None]}, None])
def test_the_details_of_an_error_are_any_json_value(details: Any) -> None:
    error = CallError("X", "it failed", details)
    assert error.details == details
    assert error.to_wire().get("details") == details


def test_details_that_raise_while_they_are_read_become_text() -> None:
    class Hostile(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("no")

    assert CallError("X", "", {"held": Hostile(a=1)}).details == {"held": "{'a': 1}"}


def test_an_exception_that_exits_when_it_is_printed_is_still_mapped() -> None:
    class Exiting(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    assert map_error(Exiting()).code == ErrorCode.EXECUTION_ERROR


# --- who ran ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "details", "nothing"),
    [
        ("UNAVAILABLE", {"sent": False}, True), ("UNAVAILABLE", {"sent": True}, False), ("UNAVAILABLE", {}, False),
        ("UNAVAILABLE", "sent", False), ("NO_RESPONDERS", None, True), ("OVERLOADED", None, True),
        ("TIMEOUT", {"sent": False}, False),
    ],
)  # fmt: skip
def test_a_code_states_whether_anything_ran(code: str, details: Any, nothing: bool) -> None:
    error = CallError(code, "m", details)
    assert error.says_nothing_ran is nothing
    assert error.args == (code, "m")


def test_an_unknown_operation_ran_nothing() -> None:
    assert operation_not_found("a.b").ran is False
    assert str(operation_not_found("a.b")) == 'OPERATION_NOT_FOUND: operation "a.b" not found'
    assert operation_not_found("a.b", "gone").message == "gone"


def test_what_a_handler_s_nested_call_did_not_run_is_not_said_of_the_handler_s_own_call() -> None:
    missing = CallError("OPERATION_NOT_FOUND", "gone")
    wrapped = out_of_handler(missing, "a.b", [ErrorDefinition("OTHER")])
    assert (wrapped.code, wrapped.details["cause"]) == ("EXECUTION_ERROR", missing.to_wire())
    assert wrapped.message == '"a.b" failed in a nested call: OPERATION_NOT_FOUND: gone'
    assert out_of_handler(missing, "a.b", [ErrorDefinition("OPERATION_NOT_FOUND")]) is missing
    missing.forwarded = True
    assert out_of_handler(missing, "a.b") is missing
    assert missing.forwarded is False, "it is said of one call, not of the one around it"
    for forwarded, ran in ((True, False), (False, None)):
        own = CallError("OWN")
        own.ran, own.forwarded = False, forwarded
        assert out_of_handler(own, "a.b") is own
        assert (own.ran, own.forwarded) == (ran, False)


def test_an_exception_without_a_text_gets_that_of_its_code() -> None:
    assert map_error(asyncio.CancelledError()).message == "the call was cancelled"
    assert map_error(asyncio.CancelledError("why")).message == "why"
    declared = [ErrorDefinition("NotFound", "it is gone")]
    assert map_error(NotFound(), declared).message == "it is gone"
    assert map_error(NotFound("why"), declared).message == "why"


def test_a_masked_error_is_logged_once_under_its_reference(caplog: pytest.LogCaptureFixture) -> None:
    hidden = map_error(ValueError("secret"))
    masked = mask_error(hidden, operation_id="a.b", request_id="r1")
    assert masked.details == {"message": masked.message, "reference": "r1"}
    assert "secret" not in str(masked)
    assert caplog.messages == ["operation 'a.b' failed (reference r1): ValueError: secret"]
    assert len(mask_error(hidden).details["reference"]) == 12
    hidden.logged = "r0"
    assert mask_error(hidden, request_id="r1").details["reference"] == "r0"
    assert len(caplog.messages) == 2
    bare = CallError("E", "odd")
    bare.undeclared = True
    mask_error(bare)
    assert caplog.messages[-1].endswith("CallError: odd")
    for shown in (mask_error(hidden, mask=False), mask_error(hidden, [hidden.code])):
        assert shown is hidden
    mine = CallError("E", "on purpose")
    assert mask_error(mine) is mine
