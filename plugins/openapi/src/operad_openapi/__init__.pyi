# Written by tools/references.py from the table in __init__.py.

from operad_auth.http import RetryPolicy as RetryPolicy
from operad_auth.http import SSEEvent as SSEEvent
from operad_auth.http import SSEEventTooLargeError as SSEEventTooLargeError
from operad_auth.http import SSEParser as SSEParser
from operad_openapi._request.request import HTTPRequest as HTTPRequest
from operad_openapi.api import from_openapi as from_openapi
from operad_openapi.api import from_openapi_file as from_openapi_file
from operad_openapi.api import from_openapi_url as from_openapi_url
from operad_openapi.config import HTTPAuth as HTTPAuth
from operad_openapi.config import HTTPLimits as HTTPLimits
from operad_openapi.config import HTTPServiceConfig as HTTPServiceConfig
from operad_openapi.config import Pagination as Pagination
from operad_openapi.envelopes import HTTPResponseMeta as HTTPResponseMeta
from operad_openapi.envelopes import http_envelope as http_envelope
from operad_openapi.fs import LocalFS as LocalFS
from operad_openapi.fs import OpenAPIFS as OpenAPIFS
from operad_openapi.operations import OpenAPIOperations as OpenAPIOperations
from operad_openapi.pagination import paginate as paginate

__all__ = [
    "HTTPAuth",
    "HTTPLimits",
    "HTTPRequest",
    "HTTPResponseMeta",
    "HTTPServiceConfig",
    "LocalFS",
    "OpenAPIFS",
    "OpenAPIOperations",
    "Pagination",
    "RetryPolicy",
    "SSEEvent",
    "SSEEventTooLargeError",
    "SSEParser",
    "from_openapi",
    "from_openapi_file",
    "from_openapi_url",
    "http_envelope",
    "paginate",
]
