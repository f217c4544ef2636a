# Written by tools/references.py from the table in __init__.py.

from operad_auth.http import cache_files as cache_files
from operad_auth.http.hosts import HostRules as HostRules
from operad_auth.http.hosts import is_loopback as is_loopback
from operad_auth.http.metrics import metrics_text as metrics_text
from operad_auth.http.retries import RateLimits as RateLimits
from operad_auth.http.retries import RetryPolicy as RetryPolicy
from operad_auth.http.retries import retry_after as retry_after
from operad_auth.http.service import tell_manager as tell_manager
from operad_auth.http.service import until_stopped as until_stopped
from operad_auth.http.sse import SSEEvent as SSEEvent
from operad_auth.http.sse import SSEEventTooLargeError as SSEEventTooLargeError
from operad_auth.http.sse import SSEParser as SSEParser
from operad_auth.http.upstream import without_upstream as without_upstream
from operad_auth.http.urls import is_loopback_host as is_loopback_host
from operad_auth.http.urls import shown_url as shown_url
from operad_auth.http.urls import without_user as without_user

__all__ = [
    "HostRules",
    "RateLimits",
    "RetryPolicy",
    "SSEEvent",
    "SSEEventTooLargeError",
    "SSEParser",
    "cache_files",
    "is_loopback",
    "is_loopback_host",
    "metrics_text",
    "retry_after",
    "shown_url",
    "tell_manager",
    "until_stopped",
    "without_upstream",
    "without_user",
]
