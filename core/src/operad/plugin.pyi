# Written by tools/references.py from the table in plugin.py.

from operad import protocol as protocol
from operad.access import may_list as may_list
from operad.calls.memory import keep_memory as keep_memory
from operad.calls.reports import Allowance as Allowance
from operad.calls.reports import Reports as Reports
from operad.calls.reports import printable as printable
from operad.calls.settings import CallSettings as CallSettings
from operad.calls.unusable import unreadable as unreadable
from operad.config.file import Configuration as Configuration
from operad.config.options import check_options as check_options
from operad.config.options import client_tls as client_tls
from operad.config.private_files import recall as recall
from operad.config.private_files import remember as remember
from operad.config.private_files import write_private as write_private
from operad.config.reading import load_configuration as load_configuration
from operad.envelopes import EnvelopeKind as EnvelopeKind
from operad.errors import CallError as CallError
from operad.errors import ConfigError as ConfigError
from operad.errors import ErrorCode as ErrorCode
from operad.failures import mask_error as mask_error
from operad.hookspecs import hookimpl as hookimpl
from operad.names import attribute_names as attribute_names
from operad.names import keyword_names as keyword_names
from operad.names import safe_names as safe_names
from operad.naming import definition_name as definition_name
from operad.naming import object_members as object_members
from operad.observers import CallClient as CallClient
from operad.observers import trace_context as trace_context
from operad.operations import DEFAULT_NAMESPACE as DEFAULT_NAMESPACE
from operad.operations import OPERATION_SPEC_SCHEMA as OPERATION_SPEC_SCHEMA
from operad.protocol import ProtocolError as ProtocolError
from operad.protocol import decode as decode
from operad.protocol import encode as encode
from operad.protocol import from_json as from_json
from operad.protocol import to_json as to_json
from operad.registry.interceptors import InterceptedCall as InterceptedCall
from operad.registry.interceptors import Interceptor as Interceptor
from operad.registry.interceptors import ResultStore as ResultStore
from operad.registry.loading import SourceFailure as SourceFailure
from operad.retries import RateLimits as RateLimits
from operad.retries import RetryPolicy as RetryPolicy
from operad.retries import retry_after as retry_after
from operad.schemas import lazy_schema as lazy_schema
from operad.schemas.bundling import SharedDefinitions as SharedDefinitions
from operad.schemas.likeness import Record as Record
from operad.service import tell_manager as tell_manager
from operad.service import until_stopped as until_stopped
from operad.sources import Admission as Admission
from operad.sources import ASGIApplication as ASGIApplication
from operad.sources import Login as Login
from operad.sources import OpenURL as OpenURL
from operad.sources import Server as Server
from operad.sources import Source as Source
from operad.sources import SourceContext as SourceContext
from operad.sources import SourceSession as SourceSession
from operad.sources import Table as Table
from operad.sources import Tell as Tell
from operad.sources import building as building
from operad.sources import from_folder as from_folder
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
from operad.wire import json_safe as json_safe
from operad.words import did_you_mean as did_you_mean

__all__ = [
    "DEFAULT_NAMESPACE",
    "OPERATION_SPEC_SCHEMA",
    "ASGIApplication",
    "Admission",
    "Allowance",
    "CallClient",
    "CallError",
    "CallSettings",
    "Capabilities",
    "ConfigError",
    "Configuration",
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
    "ProtocolError",
    "RateLimits",
    "Record",
    "Registration",
    "Reports",
    "ResultStore",
    "RetryPolicy",
    "Server",
    "SharedDefinitions",
    "Source",
    "SourceContext",
    "SourceFailure",
    "SourceSession",
    "Table",
    "Tell",
    "Transport",
    "TransportError",
    "TransportFactory",
    "attribute_names",
    "building",
    "check_options",
    "client_tls",
    "decode",
    "definition_name",
    "did_you_mean",
    "encode",
    "from_folder",
    "from_json",
    "hookimpl",
    "json_safe",
    "keep_memory",
    "keyword_names",
    "lazy_schema",
    "load_configuration",
    "mask_error",
    "may_list",
    "object_members",
    "printable",
    "protocol",
    "recall",
    "remember",
    "retry_after",
    "safe_names",
    "tell_manager",
    "to_json",
    "trace_context",
    "unreadable",
    "until_stopped",
    "write_private",
]
