"""`SourceConformance`: requirements for every source."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, ClassVar

import attrs

from operad import OperationRegistry, Plugins, load_plugins
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ConfigError, ErrorCode, OperadError
from operad.operations import OperationSpec, OperationType
from operad.sources import SourceContext
from operad_testing._examples import ANYTHING, Example, equal, given, skip
from operad_testing._running import in_loop, pause, run

NAMESPACE = "conformance"
"""The namespace under which the suite loads the source."""
POLLS = 500
"""The number of times that a test polls for a change, with pauses of 20 ms."""
MANY, LARGE = 200, 1_000_000
"""The number of concurrent calls in a test, and the size of a large result in bytes."""


@attrs.frozen(kw_only=True)
class SourceCapabilities:
    """The capabilities of a source. The suite tests the declared ones, and the support table lists them.

    In parentheses: the attribute or method of `SourceConformance` that a capability requires.
    """

    calls: bool = True
    """Whether the source has queries or mutations (``example``)."""
    subscriptions: bool = False
    """Whether the source has subscriptions (``stream``)."""
    errors: bool = True
    """Whether an operation that fails raises `CallError` with a code (``failing``)."""
    error_envelopes: bool = False
    """Whether an operation that fails returns an envelope that its kind marks as an error (``error_envelope``)."""
    cancellation: bool = True
    """Whether a call ends immediately when it is cancelled or its deadline passes (``slow``)."""
    changes: bool = False
    """Whether the operations follow changes of the server (``change()``)."""
    restarts: bool = False
    """Whether calls work again after a restart of the server (``restart()``)."""
    envelope_kind: str = "local"
    """The kind of the source's envelopes: their ``meta.source``."""


class SourceConformance:
    """Requirements for every source. Subclass it, declare the capabilities, and override `environment`.

    ::

        class TestPigeons(SourceConformance):
            source = "pigeons"
            capabilities = SourceCapabilities(subscriptions=True, envelope_kind="pigeon")
            example = Example("fly", {"to": "Rome"}, data={"arrived": True})
            stream = Example("watch", data=[{"bird": 1}, {"bird": 2}])
            ...

            @asynccontextmanager
            async def environment(self):
                async with a_loft() as address:
                    yield {"address": address}

    The suites are plain classes with plain ``test_`` methods: any runner works, and no pytest plugin is needed.
    """

    source: ClassVar[str]
    """The name under which a plugin contributes the source."""
    capabilities: ClassVar[SourceCapabilities] = SourceCapabilities()
    """The declared capabilities."""
    example: ClassVar[Example | None] = None
    """A call that succeeds."""
    invalid: ClassVar[Example | None] = None
    """A call whose input the operation's input schema rejects; None if no operation has a schema."""
    stream: ClassVar[Example | None] = None
    """A subscription, with the first items that it yields."""
    failing: ClassVar[Example | None] = None
    """A call that raises `CallError`; `Example.error` is the expected code."""
    error_envelope: ClassVar[Example | None] = None
    """A call that returns an error envelope."""
    slow: ClassVar[Example | None] = None
    """A call that takes a minute or more unless it is cancelled."""
    large: ClassVar[Example | None] = None
    """A call with a result of a megabyte or more as JSON."""
    mismatched: ClassVar[Example | None] = None
    """A call whose result does not match the output schema that the source declares. ``data`` is the result."""
    broken: ClassVar[Sequence[Mapping[str, Any]]] = ()
    """Sets of options. The source must fail to load with each set, added to the options of `environment`."""
    secrets: ClassVar[Sequence[str]] = ()
    """Strings in the options of `environment` that must not be in the log or in a repr."""

    def plugins(self) -> Plugins:
        """Return the plugins to test with: by default, all installed plugins."""
        return load_plugins()

    def environment(self) -> AbstractAsyncContextManager[Mapping[str, Any]]:
        """Return a context that runs the source's server and yields the options for ``registry.load``.

        The default runs no server and yields no options.
        """
        return _nothing()

    async def change(self, registry: OperationRegistry) -> None:
        """Change the operations that the server offers. Override this for the capability ``changes``.

        Args:
            registry: the registry that has loaded the source, under the namespace `NAMESPACE`.
        """
        raise NotImplementedError("the suite declares the capability changes; override change()")

    async def stir(self, registry: OperationRegistry) -> None:
        """Make the subscription ``stream`` yield items. Override this if the server yields none by itself.

        This runs at the same time as the subscription, and is cancelled with it. For ``registry`` see `change`.
        """

    async def restart(self, registry: OperationRegistry) -> None:
        """Restart the server at the same address. Override this for the capability ``restarts``.

        For ``registry`` see `change`.
        """
        raise NotImplementedError("the suite declares the capability restarts; override restart()")

    # --- the source itself -----------------------------------------------------------------------

    def test_a_plugin_offers_the_source(self) -> None:
        """`Plugins.sources` has the source under its name, with a one-line description."""
        source = self.plugins().source(self.source)
        equal(source.name, self.source, "the name of the source")
        assert source.description, f'give Source("{self.source}", …) a description: one line for listings'

    @in_loop
    async def test_an_unknown_option_is_refused(self) -> None:
        """Loading the source with an unknown option raises a `ConfigError` that names the option."""
        async with self.environment() as options, OperationRegistry(self.plugins()) as registry:
            error = await _refusal(registry, self.source, {**options, "no_such_option": 1}, ConfigError)
            assert "no_such_option" in error, f"the error does not name the option: {error}"

    @in_loop
    async def test_broken_options_are_refused_with_a_reason(self) -> None:
        """A source that cannot be loaded raises an `OperadError` with a message, and nothing is registered."""
        if not self.broken:
            skip(f"{type(self).__name__} gives no broken options")
        async with self.environment() as options:
            for broken in self.broken:
                async with OperationRegistry(self.plugins()) as registry:
                    error = await _refusal(registry, self.source, {**options, **broken}, OperadError)
                    assert error.strip(), f"{broken}: the error has no message"
                    equal(registry.specs(), (), f"operations after a failed load with {broken}")

    def test_secrets_are_not_shown(self) -> None:
        """No secret is in the repr of the configuration or in the log, even if loading or calling fails."""
        if not self.secrets:
            skip(f"{type(self).__name__} gives no secrets")
        shown: list[str] = []

        async def body() -> None:
            async with self.environment() as options:
                shown.append(repr(_configured(self.plugins(), self.source, options)))
                async with self._loaded(options) as registry:
                    if self.example is not None:
                        await self._execute(registry, self.example)

        # A leak, or a wrong namespace, is reported by other tests.
        with _Logged(shown), suppress(Exception):
            run(body())
        for secret in self.secrets:
            assert not any(secret in text for text in shown), "a secret is shown in a repr or in the log"

    def test_what_was_loaded_and_closed_leaves_nothing_behind(self) -> None:
        """Loading a source and closing the registry leave no task, timer or thread behind."""

        async def body() -> None:
            async with self._loaded():
                pass

        run(body())

    # --- operations ------------------------------------------------------------------------------

    @in_loop
    async def test_operations_load_into_the_namespace(self) -> None:
        """Loading registers operations with ids of the requested namespace."""
        async with self._loaded() as registry:
            specs = registry.specs()
            assert specs, "the source loaded no operation"
            for spec in specs:
                assert spec.namespace == NAMESPACE, f'{spec.id} is not in "{NAMESPACE}": use context.namespace'

    @in_loop
    async def test_specs_survive_the_wire(self) -> None:
        """The JSON form of every spec is the same after a round trip through `OperationSpec.from_wire`."""
        async with self._loaded() as registry:
            for spec in registry.specs():
                wire = spec.to_wire()
                assert OperationSpec.from_wire(json.loads(json.dumps(wire))).to_wire() == wire, spec.id

    @in_loop
    async def test_published_schemas_are_valid_by_their_meta_schema(self) -> None:
        """The schemas of every spec are valid by the meta-schema of their draft."""
        async with self._loaded() as registry:
            wrong = [error for spec in registry.specs() for error in _schema_errors(spec)]
            assert not wrong, "\n".join(["schemas that are not JSON Schema:", *wrong[:20]])

    @in_loop
    async def test_two_loads_live_side_by_side(self) -> None:
        """A source can be loaded twice into one registry, under two namespaces."""
        async with self.environment() as options, OperationRegistry(self.plugins()) as registry:
            one = await registry.load(self.source, namespace="one", **options)
            two = await registry.load(self.source, namespace="two", **options)
            equal([spec.name for spec in two], [spec.name for spec in one], "the operations of the second load")
            equal(len(registry), len(one) + len(two), "the number of operations of both loads")

    @in_loop
    async def test_closing_twice_is_harmless(self) -> None:
        """`SourceSession.aclose` is idempotent, and nothing keeps running afterwards."""
        plugins = self.plugins()
        source = plugins.source(self.source)
        async with self.environment() as options:
            config = _configured(plugins, self.source, options)
            session = await source.open(config, SourceContext(plugins=plugins, namespace=NAMESPACE))
            await session.aclose()
            await session.aclose()

    @in_loop
    async def test_operations_follow_changes(self) -> None:
        """The operations in the registry change when the operations of the server change."""
        if not self.capabilities.changes:
            skip(f"{type(self).__name__} does not declare changes")
        async with self.environment() as options, self._loaded(options) as registry:
            before = [spec.id for spec in registry.specs()]
            await self.change(registry)
            for _ in range(POLLS):
                if [spec.id for spec in registry.specs()] != before:
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("the operations did not change within 10 s; call session.changed(operations)")

    # --- calls -----------------------------------------------------------------------------------

    @in_loop
    async def test_a_call_answers_an_envelope(self) -> None:
        """The data are as expected, the metadata have the declared kind, and both survive a round trip as JSON."""
        example = given(self.example, self.capabilities.calls, self, "example")
        async with self._loaded() as registry:
            self._check(registry, await self._execute(registry, example), example.data)

    @in_loop
    async def test_calls_run_side_by_side(self) -> None:
        """Ten concurrent calls all return."""
        example = given(self.example, self.capabilities.calls, self, "example")
        async with self._loaded() as registry:
            for envelope in await asyncio.gather(*(self._execute(registry, example) for _ in range(10))):
                self._check(registry, envelope, example.data)

    @in_loop
    async def test_many_calls_at_once_all_answer(self) -> None:
        """Two hundred concurrent calls all return: no pool, queue or table of the source is too small."""
        example = given(self.example, self.capabilities.calls, self, "example")
        async with self._loaded() as registry:
            calls = [self._execute(registry, example) for _ in range(MANY)]
            for envelope in await asyncio.gather(*calls):
                self._check(registry, envelope, example.data)

    @in_loop
    async def test_a_large_answer_arrives_whole(self) -> None:
        """A result of a megabyte or more is neither cut nor changed."""
        if self.large is None:
            skip(f"{type(self).__name__} gives no large example")
        example = self.large
        async with self._loaded() as registry:
            envelope = await self._execute(registry, example)
            self._check(registry, envelope, example.data)
            size = len(json.dumps(envelope.to_wire()["data"]))
            assert size >= LARGE, f"the large example: expected {LARGE} bytes or more, got {size}"

    def test_an_answer_off_its_schema_is_passed_on_with_a_warning(self) -> None:
        """A result that does not match its output schema causes a warning, and the caller still receives it."""
        if self.mismatched is None:
            skip(f"{type(self).__name__} gives no mismatched example")
        example = self.mismatched
        logged: list[str] = []

        async def body() -> None:
            async with self._loaded() as registry:
                envelope = await self._execute(registry, example)
                equal(envelope.received, example.data, "the result of the source")

        with _Logged(logged):
            run(body())
        said = [line for line in logged if "does not match its output schema" in line]
        assert said, "nothing was logged: does the source declare an output schema?"

    @in_loop
    async def test_calls_work_again_after_a_restart(self) -> None:
        """After the server of the source has restarted, calls work again, without loading the source again."""
        if not self.capabilities.restarts:
            skip(f"{type(self).__name__} does not declare restarts")
        example = given(self.example, self.capabilities.calls, self, "example")
        async with self._loaded() as registry:
            self._check(registry, await self._execute(registry, example), example.data)
            await self.restart(registry)
            failure: CallError | None = None
            for _ in range(POLLS):
                try:
                    envelope = await self._execute(registry, example, timeout=5)
                except CallError as error:
                    failure = error
                    await asyncio.sleep(0.02)
                else:
                    self._check(registry, envelope, example.data)
                    return
            raise AssertionError(f"calls still fail after the restart: {failure}")

    @in_loop
    async def test_invalid_input_is_refused(self) -> None:
        """Input that does not match the input schema raises ``VALIDATION_ERROR``."""
        if self.invalid is None:
            skip(f"{type(self).__name__} gives no invalid example")
        example = self.invalid
        async with self._loaded() as registry:
            error = await self._failure(registry, example)
            assert error.code == ErrorCode.VALIDATION_ERROR, f"got {error.code}: {error.message}"

    @in_loop
    async def test_a_failing_call_raises_its_code(self) -> None:
        """A failure is a `CallError` with the expected code, a message, and details that JSON can represent."""
        example = given(self.failing, self.capabilities.errors, self, "failing")
        async with self._loaded() as registry:
            error = await self._failure(registry, example)
            assert error.code == (example.error or ErrorCode.EXECUTION_ERROR), f"got {error.code}: {error}"
            assert error.message, "the error has no message"
            json.dumps(error.to_wire(), allow_nan=False)

    @in_loop
    async def test_an_error_envelope_is_known_as_one(self) -> None:
        """The envelope kind's ``is_error`` is true for the envelope of a failed call."""
        example = given(self.error_envelope, self.capabilities.error_envelopes, self, "error_envelope")
        async with self._loaded() as registry:
            envelope = await self._execute(registry, example)
            self._check(registry, envelope, example.data)
            is_error = registry.plugins.envelope_kinds.is_error(envelope)
            assert is_error, f"is_error of the kind is false for {envelope.meta}"

    @in_loop
    async def test_a_deadline_ends_a_call(self) -> None:
        """A call that passes its deadline raises ``TIMEOUT``, and the next call works."""
        example = given(self.slow, self.capabilities.cancellation, self, "slow")
        async with self._loaded() as registry:
            for timeout in (0.2, 2.0, 10.0):
                error = await self._failure(registry, example, timeout=timeout)
                if error.ran is not False:  # on a busy machine it may arrive too late to be started
                    break
            assert error.code == ErrorCode.TIMEOUT, f"got {error.code}: {error.message}"
            await self._still_works(registry)

    @in_loop
    async def test_a_cancelled_call_ends(self) -> None:
        """Cancelling the calling task ends the call, and the next call works."""
        example = given(self.slow, self.capabilities.cancellation, self, "slow")
        async with self._loaded() as registry:
            call = asyncio.create_task(self._execute(registry, example))
            await pause(0.2)
            assert not call.done(), f"the slow example has ended already: {call}"
            call.cancel()
            await asyncio.wait([call], timeout=10)
            assert call.cancelled(), "the call did not end within 10 s of its cancellation"
            await self._still_works(registry)

    # --- subscriptions ---------------------------------------------------------------------------

    @in_loop
    async def test_a_subscription_yields_envelopes(self) -> None:
        """The first items are as expected, each an envelope of the declared kind."""
        example = given(self.stream, self.capabilities.subscriptions, self, "stream")
        async with self._loaded() as registry:
            spec = registry.get_spec(example.id(NAMESPACE))
            assert spec is not None, f"the source has no operation {example.id(NAMESPACE)}"
            equal(spec.type, OperationType.SUBSCRIPTION, f"the type of {spec.id}")
            expected = [ANYTHING] if example.data is ANYTHING else list(example.data)
            items = registry.subscribe(spec.id, dict(example.input), _trusted())
            async with items, _beside(self.stir(registry)):
                for data in expected:
                    self._check(registry, await anext(items), data)

    @in_loop
    async def test_leaving_a_subscription_ends_it(self) -> None:
        """Leaving the loop after the first item leaves nothing running, and the next call works."""
        example = given(self.stream, self.capabilities.subscriptions, self, "stream")
        async with self._loaded() as registry:
            items = registry.subscribe(example.id(NAMESPACE), dict(example.input), _trusted())
            async with _beside(self.stir(registry)):
                async for envelope in items:
                    assert isinstance(envelope, ResponseEnvelope), f"got {envelope!r}"
                    break
            await self._still_works(registry)

    # --- helpers---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _loaded(self, options: Mapping[str, Any] | None = None) -> AsyncIterator[OperationRegistry]:
        if options is None:
            async with self.environment() as made, self._loaded(made) as registry:
                yield registry
            return
        async with OperationRegistry(self.plugins()) as registry:
            await registry.load(self.source, namespace=NAMESPACE, **options)
            yield registry

    async def _execute(
        self, registry: OperationRegistry, example: Example, timeout: float | None = None
    ) -> ResponseEnvelope[Any]:
        operation_id = example.id(NAMESPACE)
        return await registry.execute(operation_id, dict(example.input), _trusted(), timeout=timeout)

    async def _failure(
        self, registry: OperationRegistry, example: Example, timeout: float | None = None
    ) -> CallError:
        try:
            envelope = await self._execute(registry, example, timeout)
        except CallError as error:
            return error
        raise AssertionError(f"expected {example.name} to raise a CallError, got a result: {envelope.data!r}")

    async def _still_works(self, registry: OperationRegistry) -> None:
        if self.example is not None:
            self._check(registry, await self._execute(registry, self.example), self.example.data)

    def _check(self, registry: OperationRegistry, envelope: ResponseEnvelope[Any], data: Any) -> None:
        assert isinstance(envelope, ResponseEnvelope), f"expected an envelope, got {envelope!r}"
        equal(envelope.meta.source, self.capabilities.envelope_kind, "the kind of the envelope")
        if data is not ANYTHING:
            equal(envelope.data, data, "the data")
        wire = json.loads(json.dumps(envelope.to_wire(), allow_nan=False))
        equal(registry.plugins.envelope_kinds.from_wire(wire), envelope, "the envelope after the wire")


@asynccontextmanager
async def _nothing() -> AsyncIterator[Mapping[str, Any]]:
    yield {}


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` while the block runs; if it fails, the block fails."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


def _trusted() -> OperationContext:
    """Return a trusted context, because the tests of the registry cover access control."""
    return OperationContext(trusted=True)


def _configured(plugins: Plugins, name: str, options: Mapping[str, Any]) -> Any:
    from operad.config import structure

    return structure(plugins.source(name).config_type, options, f'source "{name}"')


async def _refusal(
    registry: OperationRegistry, source: str, options: Mapping[str, Any], expected: type[OperadError]
) -> str:
    try:
        specs = await registry.load(source, namespace=NAMESPACE, **options)
    except expected as error:
        return str(error)
    raise AssertionError(f"expected {expected.__name__} for {sorted(options)}, got {len(specs)} operations")


class _Logged(logging.Handler):
    """A context that collects the messages of all log records, at every level."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._level = root.level
        root.addHandler(self)
        root.setLevel(logging.DEBUG)

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level)


def _schema_errors(spec: OperationSpec) -> Iterator[str]:
    """Yield the errors of a spec's schemas, as their author wrote the schemas."""
    from jsonschema import Draft202012Validator  # takes 50 ms to import, and only this test needs it
    from jsonschema.validators import validator_for

    schemas = {"input_schema": spec.input_schema, "output_schema": spec.output_schema}
    schemas |= {f"error_schemas[{error.code}]": error.schema for error in spec.error_schemas}
    for key, schema in schemas.items():
        written = schema.published()
        judge = validator_for(written, default=Draft202012Validator)
        for found in judge(judge.META_SCHEMA).iter_errors(written):
            yield f"{spec.id}: {key} at {found.json_path}: {found.message}"
