"""What the HTTP sides of several distributions share: allowed hosts, and when to send a request again."""

from operad_auth.http.hosts import HostRules, is_loopback
from operad_auth.http.retries import RateLimits, RetryPolicy, retry_after

__all__ = ["HostRules", "RateLimits", "RetryPolicy", "is_loopback", "retry_after"]
