"""When a request is sent again, and when it waits."""

import email.utils
import json
from pathlib import Path

import pytest

from operad import ConfigError
from operad_auth.http import RateLimits, RetryPolicy, retry_after

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
NOW = 1_800_000_000.0


@pytest.mark.parametrize(("what", "options", "asked", "repeated"), TABLES["retries"])
def test_a_request_is_repeated_if_its_policy_allows_it(what, options, asked, repeated):
    given = {"attempt": 0, **asked}
    assert (RetryPolicy(**options).wait(**given) is not None) is repeated


def test_the_wait_is_what_the_answer_asks_for_unless_that_is_too_long():
    policy = RetryPolicy(max_delay=5)
    assert policy.wait(0, "GET", 503, {"retry-after": "3"}) == 3
    assert policy.wait(0, "GET", 503, {"retry-after": "6"}) is None
    assert policy.wait(0, "GET", 503, {"retry-after-ms": "250"}) == 0.25
    assert 0 <= policy.wait(1, "GET", 503, {"retry-after": "soon"}) <= 0.5


@pytest.mark.parametrize(("value", "seconds"), [("0", 0), (" 7 ", 7), (None, None), ("", None), ("-1", None)])
def test_retry_after_holds_seconds(value, seconds):
    assert retry_after(value) == seconds


def test_retry_after_holds_a_date():
    assert retry_after(email.utils.formatdate(NOW + 30, usegmt=True), NOW) == 30
    assert retry_after(email.utils.formatdate(NOW - 30, usegmt=True), NOW) == 0


@pytest.mark.parametrize("headers", TABLES["used limits"])
def test_nothing_left_means_waiting_until_the_reset(headers):
    limits = RateLimits()
    limits.observe("a", 200, headers, NOW)
    assert limits.wait("a", NOW) == pytest.approx(20)
    assert limits.wait("a", NOW + 15) == pytest.approx(5)
    assert limits.wait("a", NOW + 21) == 0
    assert limits.wait("b", NOW) == 0


@pytest.mark.parametrize(
    "headers",
    TABLES["unused limits"],
)  # fmt: skip
def test_an_answer_that_does_not_say_so_makes_nobody_wait(headers):
    limits = RateLimits()
    limits.observe("a", 429, {"retry-after": "20"}, NOW)
    assert limits.wait("a", NOW) == 20
    limits.observe("a", 200, headers, NOW)
    assert limits.wait("a", NOW) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": -1}, "attempts: expected a number of 0 or more, got -1"),
        ({"statuses": ["x"]}, "statuses"),
        ({"methods": "GET"}, "methods"),
        ({"also": {"POST": [42]}}, "also.POST"),
        ({"atempts": 1}, "atempts.*known: attempts"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(options, message):
    with pytest.raises(ConfigError, match=message):
        RetryPolicy.of(options)


def test_a_number_is_the_attempts():
    assert RetryPolicy.of(5) == RetryPolicy(attempts=5)
    with pytest.raises(ConfigError, match="attempts"):
        RetryPolicy.of(-1)
