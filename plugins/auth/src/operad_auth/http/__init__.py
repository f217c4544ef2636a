"""What HTTP clients and servers of several distributions share: hosts, retries, and running as a service."""

from operad_auth.http.hosts import HostRules, is_loopback
from operad_auth.http.retries import RateLimits, RetryPolicy, retry_after
from operad_auth.http.service import tell_manager, until_stopped

__all__ = [
    "HostRules",
    "RateLimits",
    "RetryPolicy",
    "is_loopback",
    "retry_after",
    "tell_manager",
    "until_stopped",
]
