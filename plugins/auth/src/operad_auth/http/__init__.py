"""HTTP helpers that several distributions share: allowed hosts, retries, server-sent events, cache files."""

from operad.lazy import lazily

_HOMES = {
    "operad_auth.http.cache_files": "cache_files",
    "operad_auth.http.hosts": "HostRules is_loopback",
    "operad_auth.http.metrics": "metrics_text",
    "operad_auth.http.retries": "RateLimits RetryPolicy retry_after",
    "operad_auth.http.service": "tell_manager until_stopped",
    "operad_auth.http.upstream": "without_upstream",
    "operad_auth.http.urls": "is_loopback_host shown_url without_user",
    "operad_auth.http.sse": "SSEEvent SSEEventTooLargeError SSEParser",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
