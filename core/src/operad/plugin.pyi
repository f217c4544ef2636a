# Written by tools/references.py from the table in plugin.py.

from operad.access import may_list as may_list
from operad.calls import CallMap as CallMap
from operad.calls import CallServer as CallServer
from operad.config import check_options as check_options
from operad.config import client_tls as client_tls
from operad.envelopes import EnvelopeKind as EnvelopeKind
from operad.errors import CallError as CallError
from operad.errors import ConfigError as ConfigError
from operad.errors import ErrorCode as ErrorCode
from operad.failures import mask_error as mask_error
from operad.hookspecs import hookimpl as hookimpl
from operad.loading.sources import SourceFailure as SourceFailure
from operad.observers import trace_context as trace_context
from operad.operations import DEFAULT_NAMESPACE as DEFAULT_NAMESPACE
from operad.operations import OPERATION_SPEC_SCHEMA as OPERATION_SPEC_SCHEMA
from operad.records import record as record
from operad.registry.interceptors import InterceptedCall as InterceptedCall
from operad.registry.interceptors import Interceptor as Interceptor
from operad.sources import Server as Server
from operad.sources import Source as Source
from operad.sources import SourceContext as SourceContext
from operad.sources import SourceSession as SourceSession
from operad.sources import Table as Table
from operad.transports import Capabilities as Capabilities
from operad.transports import Delivery as Delivery
from operad.transports import Event as Event
from operad.transports import Link as Link
from operad.transports import LinkDownError as LinkDownError
from operad.transports import NoRespondersError as NoRespondersError
from operad.transports import OnEvent as OnEvent
from operad.transports import OnLink as OnLink
from operad.transports import PayloadTooLargeError as PayloadTooLargeError
from operad.transports import Registration as Registration
from operad.transports import Transport as Transport
from operad.transports import TransportError as TransportError
from operad.transports import TransportFactory as TransportFactory
from operad_auth import Login as Login
from operad_auth import OpenURL as OpenURL
from operad_auth import Tell as Tell
from operad_rules import ResultStore as ResultStore

__all__ = [
    "DEFAULT_NAMESPACE",
    "OPERATION_SPEC_SCHEMA",
    "CallError",
    "CallMap",
    "CallServer",
    "Capabilities",
    "ConfigError",
    "Delivery",
    "EnvelopeKind",
    "ErrorCode",
    "Event",
    "InterceptedCall",
    "Interceptor",
    "Link",
    "LinkDownError",
    "Login",
    "NoRespondersError",
    "OnEvent",
    "OnLink",
    "OpenURL",
    "PayloadTooLargeError",
    "Registration",
    "ResultStore",
    "Server",
    "Source",
    "SourceContext",
    "SourceFailure",
    "SourceSession",
    "Table",
    "Tell",
    "Transport",
    "TransportError",
    "TransportFactory",
    "check_options",
    "client_tls",
    "hookimpl",
    "mask_error",
    "may_list",
    "record",
    "trace_context",
]
