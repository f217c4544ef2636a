"""REST APIs described by OpenAPI documents as operad operations."""

from operad.lazy import lazily

# Lazily: finding the plugin imports this package. Type checkers read __init__.pyi.
_HOMES = {
    "operad_auth.http": "RetryPolicy SSEEvent SSEEventTooLargeError SSEParser",
    "operad_openapi.api": "from_openapi from_openapi_file from_openapi_url",
    "operad_openapi.config": "HTTPAuth HTTPLimits HTTPServiceConfig Pagination",
    "operad_openapi.envelopes": "HTTPResponseMeta http_envelope",
    "operad_openapi.fs": "LocalFS OpenAPIFS",
    "operad_openapi._request.request": "HTTPRequest",
    "operad_openapi.operations": "OpenAPIOperations",
    "operad_openapi.pagination": "paginate",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
