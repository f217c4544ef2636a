"""The public names: what is listed here is promised. A name that comes or goes is a decision, made here."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys

import pytest

PROMISED = {
    "operad": """
        AccessControl CallError CallEventMap CallHandler ConfigError Conversions EnvelopeKind ErrorCode ErrorDefinition
        FirstResults Identity InProcessTransport LocalResponseMeta MemoryResults OpaqueMeta OperadError Operation OperationContext OperationEnv OperationRegistry
        OperationSpec OperationType PendingRequestMap PluginError PluginRecord Plugins RegistrationError
        ResponseEnvelope Schema SchemaError SourceError Subscription build_env check_access from_remote from_schema
        hookimpl is_response_envelope load_plugins local_envelope map_error operation subscribe unwrap
    """,
    "operad.auth": """
        AnyAuthenticator Authenticator CredentialProvider Credentials DelegationSigner Fetch FetchResponse HostRules
        IntrospectionAuthenticator IntrospectionOptions
        JWTAuthenticator JWTDelegation JWTOptions Login LoginRequired LoopbackListener OAuthClient OAuthError
        OAuthOptions OAuthToken StaticTokens TokenKey TokenRecord TokenStore any_of as_authenticator
        authenticator authenticator_from default_fetch discover is_loopback provider_of
    """,
    "operad.plugin": """
        DEFAULT_NAMESPACE OPERATION_SPEC_SCHEMA CallError CallMap CallServer Capabilities ConfigError
        Delivery EnvelopeKind ErrorCode Event InterceptedCall Interceptor Link LinkDownError Login
        NoRespondersError OnEvent OnLink OpenURL PayloadTooLargeError Registration ResultStore Server
        Source SourceContext SourceFailure SourceSession Table Tell Transport TransportError
        TransportFactory check_options client_tls hookimpl mask_error may_list record trace_context
    """,
    "operad.sync": """
        OperationRegistry PendingRequestMap Subscription
    """,
    "operad.testing": """
        ANYTHING BrokerConformance CallLog Cassette EnvelopeKindCapabilities EnvelopeKindConformance Example HeldResources Participant
        PluginConformance ResultStoreConformance ServerProcess SourceCapabilities SourceConformance StaticSource TransportConformance
        assert_nothing_pending cassette envelope_schema free_port hostile_schemas make_plugin plugins_of run support_table
    """,
}

HEAVY = ("aiohttp", "fastjsonschema", "grpc", "jsonschema", "mcp", "nats", "pydantic", "redis", "yaml", "typer")
"""What neither operad nor loading its plugins may import: each costs 10 ms to 400 ms."""


@pytest.mark.parametrize("module", PROMISED)
def test_the_promised_names_are_there_and_no_others(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(PROMISED[module].split())


def test_authors_of_plugins_meet_at_most_forty_names() -> None:
    assert len(PROMISED["operad.plugin"].split()) <= 40


@pytest.mark.parametrize("module", PROMISED)
def test_the_list_of_names_is_sorted_and_each_name_exists(module: str) -> None:
    imported = importlib.import_module(module)
    assert imported.__all__ == sorted(imported.__all__, key=lambda name: (not name.isupper(), name))
    for name in imported.__all__:
        assert hasattr(imported, name), name


@pytest.mark.parametrize("module", PROMISED)
def test_every_public_class_and_function_has_a_docstring(module: str) -> None:
    for name in PROMISED[module].split():
        value = getattr(importlib.import_module(module), name, None)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module}.{name} has no docstring"
            for method, member in vars(value).items():
                if inspect.isfunction(member) and not method.startswith("_"):
                    assert member.__doc__, f"{module}.{name}.{method} has no docstring"


def imported_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has imported after ``code``."""
    probe = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True)
    return {module.partition(".")[0] for module in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "code",
    [
        "import operad",
        "import operad.plugin",
        "import operad\noperad.load_plugins()",
        "import operad\noperad.OperationRegistry(operad.load_plugins())",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(code: str) -> None:
    assert imported_by(code).isdisjoint(HEAVY)


def test_the_conformance_kit_needs_no_test_runner() -> None:
    assert imported_by("import operad.testing; operad.testing.run").isdisjoint(
        {"pytest", "_pytest", "hypothesis", *HEAVY}
    )
