"""When a request is sent again, and when it waits."""

import email.utils

import pytest

from operad import ConfigError
from operad_auth.http import RateLimits, RetryPolicy, retry_after

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("method", "status", "repeated"),
    [
        ("GET", 503, True), ("GET", None, True), ("GET", 500, False), ("GET", 404, False),
        ("POST", 503, False), ("POST", None, False), ("POST", 429, False), ("DELETE", 502, True), ("OPTIONS", None, False),
    ],
)  # fmt: skip
def test_by_default_what_http_calls_idempotent_is_repeated_after_a_passing_failure(method, status, repeated):
    assert (RetryPolicy().wait(0, method, status) is not None) is repeated


def test_what_says_itself_that_repeating_does_no_harm_is_repeated():
    assert RetryPolicy().wait(0, "POST", 503, repeatable=True) is not None
    assert RetryPolicy().wait(0, "POST", None, repeatable=True) is not None


def test_a_method_can_be_repeated_after_further_statuses():
    policy = RetryPolicy(also={"post": [429], "GET": [500]})
    assert policy.wait(0, "POST", 429) is not None
    assert policy.wait(0, "POST", 503) is None
    assert policy.wait(0, "POST", None) is None
    assert policy.wait(0, "GET", 500) is not None
    assert policy.wait(0, "GET", 503) is not None


def test_the_methods_and_statuses_can_be_others():
    policy = RetryPolicy(methods=["post"], statuses=[500])
    assert policy.wait(0, "POST", 500) is not None
    assert policy.wait(0, "GET", 500) is None
    assert policy.wait(0, "POST", 503) is None


def test_the_attempts_end():
    policy = RetryPolicy(attempts=2)
    assert policy.wait(1, "GET", 503) is not None
    assert policy.wait(2, "GET", 503) is None
    assert RetryPolicy(attempts=0).wait(0, "GET") is None


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


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 20)},
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((int(NOW) + 20) * 1000)},
        {"x-rate-limit-remaining": "0", "x-rate-limit-reset": "20"},
        {"ratelimit-remaining": " 0", "ratelimit-reset": "20"},
        {"ratelimit": '"default";r=0;t=20'},
    ],
)
def test_nothing_left_means_waiting_until_the_reset(headers):
    limits = RateLimits()
    limits.observe("a", 200, headers, NOW)
    assert limits.wait("a", NOW) == pytest.approx(20)
    assert limits.wait("a", NOW + 15) == pytest.approx(5)
    assert limits.wait("a", NOW + 21) == 0
    assert limits.wait("b", NOW) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"x-ratelimit-remaining": "1", "x-ratelimit-reset": "20"}, {"x-ratelimit-remaining": "0"},
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "6m0s"}, {"ratelimit": '"default";r=5;t=20'},
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "nan"}, {"retry-after": "20"},
    ],
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
