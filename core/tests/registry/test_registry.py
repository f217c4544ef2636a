"""Registering, looking up and calling operations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import attrs
import pytest

from operad import (
    CallError,
    ErrorCode,
    Identity,
    LocalResponseMeta,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    OperationType,
    RegistrationError,
    ResponseEnvelope,
    from_schema,
    operation,
)
from operad_testing import make_plugin, plugins_of

PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def spec(name: str = "add", **fields: Any) -> OperationSpec:
    return OperationSpec(namespace="math", name=name, **fields)


async def add(input: dict[str, int], context: OperationContext) -> int:
    return input["a"] + input["b"]


async def code_of(call: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await call
    return caught.value


# --- registering -------------------------------------------------------------------------------------


async def test_an_operation_answers_a_local_envelope_with_its_id_and_the_time() -> None:
    registry = OperationRegistry()
    registry.register(spec(input_schema=PAIR, output_schema={"type": "integer"}), add)
    envelope = await registry.execute("math.add", {"a": 1, "b": 2})
    assert isinstance(envelope, ResponseEnvelope)
    assert isinstance(envelope.meta, LocalResponseMeta)
    assert (envelope.data, envelope.meta.source, envelope.meta.operation_id) == (3, "local", "math.add")
    assert envelope.meta.timestamp > 1_600_000_000_000


def test_an_id_taken_twice_is_an_error_that_names_both_owners() -> None:
    registry = OperationRegistry()
    registry.register(spec(), add)

    async def other(input: Any, context: Any) -> None: ...

    with pytest.raises(RegistrationError) as caught:
        registry.register(spec(), other)
    assert '"math.add"' in str(caught.value)
    assert f"{__name__}.add" in str(caught.value)
    assert "<locals>.other" in str(caught.value)
    assert registry.get_handler("math.add") is add


async def test_replace_overwrites_spec_and_handler() -> None:
    registry = OperationRegistry()
    registry.register(spec(description="old"), add)
    await registry.execute("math.add", {"a": 1, "b": 2})
    registry.register(Operation(spec(description="new"), lambda _, context: 7), replace=True)
    assert registry.specs()[0].description == "new"
    async with registry:
        assert (await registry.execute("math.add")).data == 7


@pytest.mark.parametrize("spec_first", [True, False])
async def test_spec_and_handler_may_come_apart_in_either_order(spec_first: bool) -> None:
    registry = OperationRegistry()
    steps: list[Any] = [lambda: registry.register_spec(spec()), lambda: registry.register_handler("math.add", add)]
    for step in steps if spec_first else reversed(steps):
        step()
    assert (await registry.execute("math.add", {"a": 2, "b": 2})).data == 4


@pytest.mark.parametrize("replace", [False, True])
async def test_a_spec_without_handler_is_not_found_and_says_why(replace: bool) -> None:
    registry = OperationRegistry()
    registry.register_spec(spec(), replace=replace)
    error = await code_of(registry.execute("math.add", {}))
    assert error.code == ErrorCode.OPERATION_NOT_FOUND
    assert error.message == 'no handler registered for operation "math.add"; use register_handler'
    assert error.details == {"operationId": "math.add"}


async def test_an_unknown_id_is_not_found() -> None:
    error = await code_of(OperationRegistry().execute("no.such"))
    assert (error.code, error.details) == (ErrorCode.OPERATION_NOT_FOUND, {"operationId": "no.such"})


@pytest.mark.parametrize("spec_is_there", [True, False])
def test_a_second_handler_needs_replace_and_both_are_named(spec_is_there: bool) -> None:
    registry = OperationRegistry()
    if spec_is_there:
        registry.register_spec(spec())
    registry.register_handler("math.add", add)

    async def other(input: Any, context: Any) -> None: ...

    with pytest.raises(RegistrationError, match=r"test_registry\.add.*other"):
        registry.register_handler("math.add", other)
    registry.register_handler("math.add", other, replace=True)
    assert registry.get_handler("math.add") is other


def test_a_spec_with_a_handler_conflicts_with_a_handler_that_waits() -> None:
    registry = OperationRegistry()
    registry.register_handler("math.add", add)
    with pytest.raises(RegistrationError, match="handler already"):
        registry.register(spec(), lambda _, context: 1)
    registry.register_spec(spec())
    assert registry.get_handler("math.add") is add


async def test_replacing_only_the_spec_keeps_the_handler() -> None:
    registry = OperationRegistry()
    registry.register(spec(), add)
    with pytest.raises(RegistrationError):
        registry.register_spec(spec(description="new"))
    registry.register_spec(spec(description="new"), replace=True)
    assert registry.specs()[0].description == "new"
    assert (await registry.execute("math.add", {"a": 1, "b": 1})).data == 2


def test_register_without_handler_points_to_register_spec() -> None:
    with pytest.raises(TypeError, match="register_spec"):
        OperationRegistry().register(spec(), None)  # type: ignore[call-overload]  # the mistake under test


def test_unregister_removes_and_an_unknown_id_is_an_error() -> None:
    registry = OperationRegistry()
    registry.register(spec(), add)
    assert "math.add" in registry
    registry.unregister("math.add")
    assert "math.add" not in registry
    assert len(registry) == 0
    with pytest.raises(RegistrationError, match="math.add"):
        registry.unregister("math.add")


def test_specs_is_a_sorted_snapshot() -> None:
    registry = OperationRegistry()
    for name in "cab":
        registry.register(spec(name), add)
    before = registry.specs()
    assert [item.name for item in before] == ["a", "b", "c"]
    registry.unregister("math.b")
    assert len(before) == 3
    assert [item.name for item in registry.specs()] == ["a", "c"]
    assert registry.get_spec("math.a") is before[0]
    assert registry.get_spec("math.b") is None
    assert registry.get_handler("math.b") is None


@pytest.mark.parametrize("namespace", ["", "a.b", "a b", "ä", "a/b"])
def test_a_namespace_that_makes_no_id_is_refused(namespace: str) -> None:
    with pytest.raises(RegistrationError, match="namespace"):
        OperationSpec(namespace=namespace, name="x")


@pytest.mark.parametrize("name", ["", "a b", "a\tb", "a\n", "\u2028", "a\u00a0b", "\x00"])
def test_a_name_with_white_space_or_controls_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="name"):
        OperationSpec(namespace="n", name=name)


@pytest.mark.parametrize("name", ["pulls/create", "a.b.c", "größe", "a:b?c=d", "x-y_z"])
async def test_a_name_may_hold_any_printable_character(name: str) -> None:
    registry = OperationRegistry()
    registry.register(spec(name), add)
    assert (await registry.execute(f"math.{name}", {"a": 1, "b": 1})).data == 2


# --- the path of a call ------------------------------------------------------------------------------


async def test_the_input_is_validated_and_never_cast() -> None:
    registry = OperationRegistry()
    seen = []

    async def look(input: Any, context: Any) -> None:
        seen.append(input)

    registry.register(spec(input_schema=PAIR), look)
    error = await code_of(registry.execute("math.add", {"a": "1"}))
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert error.details is not None
    assert {"path", "message", "keyword"} == set(error.details["errors"][0])
    assert not seen
    given = {"a": 1, "b": 2, "extra": True}
    await registry.execute("math.add", given)
    assert seen == [given]


async def test_access_is_checked_before_the_input() -> None:
    registry = OperationRegistry()
    registry.register(spec(input_schema=PAIR, access_control={"required_scopes": ["sum"]}), add)
    assert (await code_of(registry.execute("math.add", {}))).code == ErrorCode.ACCESS_DENIED
    nobody = OperationContext(identity=Identity("ann", ["other"]))
    error = await code_of(registry.execute("math.add", {"a": 1, "b": 1}, nobody))
    assert error.details == {"requiredScopes": ["sum"]}
    assert "other" not in str(error)
    ann = OperationContext(identity=Identity("ann", ["sum"]))
    assert (await registry.execute("math.add", {"a": 1, "b": 1}, ann)).data == 2
    assert (await registry.execute("math.add", {"a": 1, "b": 1}, OperationContext(trusted=True))).data == 2


async def test_each_call_has_an_id_of_its_own_unless_the_caller_gives_one() -> None:
    registry = OperationRegistry()

    async def who(input: Any, context: OperationContext) -> Any:
        return context.request_id

    registry.register(spec(), who)
    ids = {(await registry.execute("math.add")).data for _ in range(100)}
    assert len(ids) == 100
    context = OperationContext("mine")
    assert (await registry.execute("math.add", {}, context)).data == "mine"


async def test_a_context_may_be_used_for_many_calls() -> None:
    registry = OperationRegistry()

    async def who(input: Any, context: OperationContext) -> Any:
        return context.request_id, context.deadline, context.identity

    registry.register(spec(), who)
    context = OperationContext(identity=Identity("ann"))
    first, second = [(await registry.execute("math.add", {}, context, timeout=9)).data for _ in range(2)]
    assert first[0] != second[0]
    assert context.request_id is None
    assert context.deadline is None
    assert first[2] == second[2] == Identity("ann")


@pytest.mark.parametrize("kind", ["async", "plain", "in the loop"])
async def test_a_handler_that_exits_does_not_end_the_process(kind: str) -> None:
    async def leave(input: Any, context: Any) -> None:
        raise SystemExit(3)

    def plain(input: Any, context: Any) -> None:
        raise SystemExit(3)

    async with OperationRegistry() as registry:
        handler = leave if kind == "async" else plain
        registry.register(Operation(spec(), handler, blocking=False if kind == "in the loop" else None))
        error = await code_of(registry.execute("math.add"))
    assert error.code == ErrorCode.UNKNOWN_ERROR
    assert error.details == {"raw": "SystemExit(3)"}


async def test_a_real_cancellation_passes_through_untouched() -> None:
    registry = OperationRegistry()
    begun, events = asyncio.Event(), []

    async def wait(input: Any, context: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            events.append(error)
            raise

    registry.register(spec(), wait)
    task = asyncio.create_task(registry.execute("math.add", timeout=60))
    await begun.wait()
    task.cancel("because")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert len(events) == 1
    assert caught.value.__cause__ is None


async def test_execute_of_a_subscription_takes_the_first_item_and_closes_it() -> None:
    registry = OperationRegistry()
    closed = []

    async def count(input: Any, context: Any) -> Any:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append(True)

    registry.register(spec(type="subscription", output_schema={"type": "integer"}), count)
    assert (await registry.execute("math.add")).data == 0
    assert closed == [True]


async def test_execute_of_an_empty_subscription_is_an_execution_error() -> None:
    registry = OperationRegistry()

    async def nothing(input: Any, context: Any) -> Any:
        return
        yield

    registry.register(spec(type=OperationType.SUBSCRIPTION), nothing)
    error = await code_of(registry.execute("math.add"))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "without an item" in error.message


async def test_an_object_with_an_async_call_is_a_handler() -> None:
    class Adder:
        async def __call__(self, input: Any, context: Any) -> int:
            return 5

    registry = OperationRegistry()
    registry.register(spec(), Adder())
    assert (await registry.execute("math.add")).data == 5


async def test_a_broken_input_schema_lets_values_pass_rather_than_breaking_the_call() -> None:
    registry = OperationRegistry()
    registry.register(spec(input_schema={"$ref": "#/nowhere"}), add)
    assert (await registry.execute("math.add", {"a": 1, "b": 1})).data == 2


def test_an_operation_type_that_is_none_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RegistrationError, match="query, mutation, subscription"):
        spec(type="question")


# --- operations that plugins know --------------------------------------------------------------------


async def test_a_resolved_operation_that_an_interceptor_leaves_out_is_not_found() -> None:
    async def one(input: Any, context: OperationContext) -> int:
        return 1

    found = Operation(OperationSpec(namespace="big", name="one"), one)
    plugins = plugins_of(make_plugin("big", operad_resolve_operation=lambda operation_id: found))
    registry = OperationRegistry(plugins)
    registry.use(match="big.*", change=lambda operation: None)
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await registry.execute("big.one")


async def test_an_interceptor_changes_operations_that_are_registered_until_it_is_removed() -> None:
    registry = OperationRegistry()

    def changed(operation: Operation[..., Any]) -> Operation[..., Any]:
        words = f"{operation.spec.description}!"
        return attrs.evolve(operation, spec=attrs.evolve(operation.spec, description=words))

    remove = registry.use(match="math.*", change=changed)
    registry.register(spec(description="1"), add)
    for description in ("1!", "1"):
        registry.register_handler("math.add", add, replace=True)
        assert [each.description for each in registry.specs()] == [description]
        assert (await registry.execute("math.add", {"a": 1, "b": 2})).data == 3
        remove()


@pytest.mark.parametrize(("forwarded", "ran"), [(False, None), (True, False)])
async def test_an_error_that_nothing_ran_does_not_hold_for_the_handler_around(forwarded: bool, ran: Any) -> None:
    async def fail(input: Any, context: OperationContext) -> None:
        error = CallError("BUSY", "later")
        error.ran, error.forwarded = False, forwarded
        raise error

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="t", name="fail"), fail)
    with pytest.raises(CallError, match="^BUSY: later") as caught:
        await registry.execute("t.fail")
    assert (caught.value.ran, caught.value.forwarded) == (ran, False)


async def test_observers_of_the_registry_see_what_is_added_and_removed() -> None:
    seen: list[str] = []
    plugin = make_plugin(
        "watcher",
        operad_operation_added=lambda spec: seen.append(f"+{spec.id} {spec.description}"),
        operad_operation_removed=lambda spec: seen.append(f"-{spec.id} {spec.description}"),
    )
    registry = OperationRegistry(plugins_of(plugin))
    registry.register(spec(description="1"), add)
    registry.register(spec(description="2"), add, replace=True)
    registry.unregister("math.add")
    assert seen == ["+math.add 1", "-math.add 1", "+math.add 2", "-math.add 2"]


async def test_an_input_is_adapted_before_it_is_checked():
    """What Python callers give beside JSON is the business of whoever made the operation."""

    async def handler(input, context):
        return input

    async def items(input, context):
        yield input

    def adapt(input):
        return {key: str(value) for key, value in input.items() if value is not None}

    schema = from_schema(
        {"type": "object", "properties": {"day": {"type": "string"}}, "additionalProperties": False}
    )
    registry = OperationRegistry()
    for name, function in (("one", handler), ("many", items)):
        kind = OperationType.SUBSCRIPTION if name == "many" else OperationType.QUERY
        spec = OperationSpec(namespace="t", name=name, type=kind, input_schema=schema)
        registry.register(Operation(spec, function, adapt=adapt))
    given = {"day": date(2026, 1, 2), "other": None}
    assert (await registry.execute("t.one", given)).data == {"day": "2026-01-02"}
    assert [envelope.data async for envelope in registry.subscribe("t.many", given)] == [{"day": "2026-01-02"}]
    assert given == {"day": date(2026, 1, 2), "other": None}


async def test_an_id_that_is_nearly_right_is_answered_with_the_one_that_was_meant() -> None:
    async with OperationRegistry() as registry:
        registry.register(spec("multiply"), add)
        with pytest.raises(CallError, match='operation "math.multipy" not found; did you mean "math.multiply"?'):
            await registry.execute("math.multipy")
        with pytest.raises(CallError, match='operation "mail.send" not found$'):
            await registry.execute("mail.send")


def test_the_owner_of_a_typed_function_is_named_by_the_function() -> None:
    @operation(namespace="math")
    async def add(a: int) -> int:
        return a

    registry = OperationRegistry()
    registry.register(add)
    with pytest.raises(RegistrationError, match=r"the application \(.*test_registry.*add\)"):
        registry.register(add)


class CountedPages:
    def following(self, input, envelope):
        return {**input, "page": envelope.data["page"] + 1} if envelope.data["page"] < 3 else None

    def items(self, envelope):
        return envelope.data["items"]


async def list_page(input, context):
    page = input.get("page", 1)
    return {"page": page, "items": [page * 10, page * 10 + 1]}


async def test_pages_are_one_call_each_and_items_what_stands_on_them():
    registry = OperationRegistry()
    registry.register(Operation(spec("list"), list_page, pages=CountedPages()))
    assert [page.data["page"] async for page in registry.paginate("math.list")] == [1, 2, 3]
    assert [item async for item in registry.paginate("math.list", items=True)] == [10, 11, 20, 21, 30, 31]
    assert [page.data["page"] async for page in registry.paginate("math.list", {"page": 2}, max_pages=1)] == [2]


async def test_an_operation_without_pages_is_one_page():
    registry = OperationRegistry()
    registry.register(Operation(spec("list"), list_page))
    assert [page.data["page"] async for page in registry.paginate("math.list")] == [1]
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await anext(registry.paginate("math.nope"))


@pytest.mark.parametrize(("wrong", "more"), [(1, ""), (3, ""), (4, " (and 1 more)"), (6, " (and 3 more)")])
async def test_the_first_three_faults_of_an_input_are_told_and_all_listed(wrong: int, more: str) -> None:
    schema = {"properties": {f"p{number}": {"type": "integer"} for number in range(9)}}
    registry = OperationRegistry()
    registry.register(spec(input_schema=schema), add)
    error = await code_of(registry.execute("math.add", {f"p{number}": "x" for number in range(wrong)}))
    faults = [f"expected integer, got str at $.p{number}" for number in range(wrong)]
    assert error.message == f'invalid input for "math.add": {"; ".join(faults[:3])}{more}'
    assert isinstance(error.details, dict)
    assert [row["message"] for row in error.details["errors"]] == faults
    assert error.details["errors"][0] == {"path": "$.p0", "message": faults[0], "keyword": "type"}


def test_the_repr_of_a_registry_counts_what_it_has() -> None:
    registry = OperationRegistry()
    assert repr(registry) == "OperationRegistry(0 operations in 0 namespaces)"
    registry.register(spec(), add)
    assert repr(registry) == "OperationRegistry(1 operation in 1 namespace)"
    registry.register(spec("sub"), add)
    assert repr(registry) == "OperationRegistry(2 operations in 1 namespace)"


async def test_closing_awaits_each_function_in_reverse_order_even_if_one_fails() -> None:
    closed: list[str] = []
    registry = OperationRegistry()

    async def first() -> None:
        closed.append("first")

    async def second() -> None:
        closed.append("second")
        raise OSError("no")

    registry.on_close(first)
    registry.on_close(second)
    with pytest.raises(OSError, match="no"):
        await registry.aclose()
    assert closed == ["second", "first"]


# --- interceptors of registrations -----------------------------------------------------------------------


def leaving_out(condition: Any) -> OperationRegistry:
    registry = OperationRegistry()
    registry.use(change=lambda given: None if condition(given) else given)
    return registry


def test_what_an_interceptor_leaves_out_takes_the_operation_away_that_was_there() -> None:
    for_spec = leaving_out(lambda given: given.spec.deprecated)
    for_spec.register(spec(), add)
    for_spec.register(spec(deprecated=True), add, replace=True)
    assert len(for_spec) == 0
    for_spec.register(spec(deprecated=True), add)
    assert len(for_spec) == 0
    for_handler = leaving_out(lambda given: given.handler is not None)
    for_handler.register_spec(spec())
    assert len(for_handler) == 1
    for_handler.register_handler(spec().id, add)
    assert len(for_handler) == 0


async def test_the_handler_of_a_registration_goes_before_one_that_waits_for_its_spec() -> None:
    async def other(input: Any, context: OperationContext) -> str:
        return "other"

    registry = OperationRegistry()
    registry.register_handler(spec().id, other)
    with pytest.raises(
        RegistrationError, match=r"handler already, from the application \(.*other\), and now .*add"
    ):
        registry.register(spec(), add)
    registry.register(spec(), add, replace=True)
    assert registry.get_handler(spec().id) is add


async def test_an_error_of_a_handler_is_raised_as_it_is_and_without_a_cause() -> None:
    async def refuse(input: Any, context: OperationContext) -> None:
        raise CallError("MINE", "no")

    registry = OperationRegistry()
    registry.register(spec(), refuse)
    with pytest.raises(CallError, match="MINE") as caught:
        await registry.execute(spec().id, {"a": 1, "b": 2})
    assert caught.value.__cause__ is None


async def test_an_envelope_is_made_now_and_the_call_of_one_item_has_the_deadline_of_its_subscription() -> None:
    async def when(input: Any, context: OperationContext) -> float | None:
        return context.remaining()

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="a", name="when"), when)
    before = time.time_ns() // 1_000_000
    made = await registry.execute("a.when")
    assert made.data is None
    assert before <= made.meta.timestamp <= time.time_ns() // 1_000_000
    (item,) = [envelope.data async for envelope in registry.subscribe("a.when", timeout=500)]
    assert 0 < item <= 500


@pytest.mark.parametrize(("asked", "meant"), [("shop.getPetByIdent", True), ("shop.getPetByIdentif", False)])
async def test_an_id_that_is_at_most_three_characters_longer_is_meant(asked: str, meant: bool) -> None:
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="shop", name="getPetById"), add)
    with pytest.raises(CallError, match="OPERATION_NOT_FOUND") as caught:
        await registry.execute(asked)
    assert ('did you mean "shop.getPetById"?' in caught.value.message) is meant


async def test_of_plugins_that_resolve_an_id_the_first_that_knows_it_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(operation_id: str) -> None:
        raise OSError("no listing")

    resolvers = [
        fails, lambda operation_id: None, lambda operation_id: 3,
        lambda operation_id: Operation(OperationSpec(namespace="b", name="other"), add),
        lambda operation_id: Operation(OperationSpec(namespace="a", name="b"), add),
    ]  # fmt: skip
    for order in (resolvers, resolvers[::-1]):
        made = [make_plugin(f"p{at}", operad_resolve_operation=each) for at, each in enumerate(order)]
        registry = OperationRegistry(plugins_of(*made))
        assert (await registry.execute("a.b", {"a": 1, "b": 2})).data == 3
    registry = OperationRegistry(plugins_of(make_plugin("p", operad_resolve_operation=fails)))
    with pytest.raises(CallError, match="no listing"):
        await registry.execute("a.b")
    assert 'failed to resolve operation "a.b"' in caplog.text


def test_one_registry_streams_in_one_event_loop_after_the_other() -> None:
    async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
        yield 1

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="a", name="count"), count)

    async def read() -> list[Any]:
        return [envelope.data async for envelope in registry.subscribe("a.count")]

    assert [asyncio.run(read()) for _ in range(2)] == [[1], [1]]
