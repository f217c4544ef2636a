"""Registering, looking up and calling operations."""

from __future__ import annotations

import asyncio
import time
from datetime import date
from typing import Any

import attrs
import pytest

from core.tests.kit import data_of, echo, error_of, ids, op, raising, registry_of, spec, streaming
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
from operad_testing import make_plugin


@pytest.mark.parametrize(
    ("others", "asked", "meant"),
    [
        (0, "shop.getPetByIdent", True),
        (0, "shop.getPetByIdenti", False),
        (1_999, "shop.getPetByIt", True),
        (2_000, "shop.getPetByIt", False),
    ],
)
async def test_an_id_that_is_at_most_three_characters_longer_is_meant_if_it_is_among_2_000(
    others: int, asked: str, meant: bool
) -> None:
    registry = registry_of(*(spec(f"n{number:013}") for number in range(others)), op("shop.getPetById"))
    error = await error_of(registry.execute(asked), "OPERATION_NOT_FOUND")
    assert ('did you mean "shop.getPetById"?' in error.message) is meant


PAIR = {"type": "object", "properties": {name: {"type": "integer"} for name in "ab"}, "required": ["a", "b"]}


async def add(input: dict[str, int], context: OperationContext) -> int:
    return input["a"] + input["b"]


async def other(input: Any, context: OperationContext) -> str:
    return "other"


async def test_an_operation_answers_a_local_envelope_with_its_id() -> None:
    registry = registry_of(op("op", add, input_schema=PAIR, output_schema={"type": "integer"}))
    envelope = await registry.execute("t.op", {"a": 1, "b": 2})
    assert isinstance(envelope, ResponseEnvelope)
    assert isinstance(envelope.meta, LocalResponseMeta)
    assert (envelope.data, envelope.meta.source, envelope.meta.operation_id) == (3, "local", "t.op")


# --- registering -------------------------------------------------------------------------------------


def test_an_id_taken_twice_is_an_error_that_names_both_owners() -> None:
    registry = registry_of(op=add)
    with pytest.raises(RegistrationError, match=rf'(?s)"t\.op".*{__name__}\.add.*{__name__}\.other'):
        registry.register(spec(), other)
    assert registry.get_handler("t.op") is add


async def test_replace_overwrites_spec_and_handler() -> None:
    registry = registry_of(op(description="old"))
    await registry.execute("t.op")
    registry.register(Operation(spec(description="new"), lambda _, context: 7), replace=True)
    assert registry.specs()[0].description == "new"
    async with registry:
        assert (await registry.execute("t.op")).data == 7


@pytest.mark.parametrize("spec_first", [True, False])
async def test_spec_and_handler_may_come_apart_in_either_order(spec_first: bool) -> None:
    registry = OperationRegistry()
    steps: list[Any] = [lambda: registry.register_spec(spec()), lambda: registry.register_handler("t.op", echo)]
    for step in steps if spec_first else reversed(steps):
        step()
    assert (await registry.execute("t.op", 4)).data == 4


@pytest.mark.parametrize("replace", [False, True])
async def test_a_spec_without_handler_is_not_found_and_says_why(replace: bool) -> None:
    registry = OperationRegistry()
    registry.register_spec(spec(), replace=replace)
    error = await error_of(registry.execute("t.op", {}))
    assert error.code == ErrorCode.OPERATION_NOT_FOUND
    assert error.message == 'no handler registered for operation "t.op"; use register_handler'
    assert error.details == {"operationId": "t.op"}


async def test_an_unknown_id_is_not_found() -> None:
    error = await error_of(OperationRegistry().execute("no.such"))
    assert (error.code, error.details) == (ErrorCode.OPERATION_NOT_FOUND, {"operationId": "no.such"})


@pytest.mark.parametrize("spec_is_there", [True, False])
def test_a_second_handler_needs_replace_and_both_are_named(spec_is_there: bool) -> None:
    registry = registry_of(*([spec()] if spec_is_there else []))
    registry.register_handler("t.op", add)
    with pytest.raises(RegistrationError, match=r"test_registry\.add.*other"):
        registry.register_handler("t.op", other)
    registry.register_handler("t.op", other, replace=True)
    assert registry.get_handler("t.op") is other


def test_a_spec_with_a_handler_conflicts_with_a_handler_that_waits_unless_it_replaces_it() -> None:
    registry = OperationRegistry()
    registry.register_handler("t.op", other)
    with pytest.raises(
        RegistrationError, match=r"handler already, from the application \(.*other\), and now .*add"
    ):
        registry.register(spec(), add)
    registry.register_spec(spec())
    assert registry.get_handler("t.op") is other
    registry.unregister("t.op")
    registry.register_handler("t.op", other)
    registry.register(spec(), add, replace=True)
    assert registry.get_handler("t.op") is add


async def test_replacing_only_the_spec_keeps_the_handler() -> None:
    registry = registry_of(op())
    with pytest.raises(RegistrationError):
        registry.register_spec(spec(description="new"))
    registry.register_spec(spec(description="new"), replace=True)
    assert registry.specs()[0].description == "new"
    assert (await registry.execute("t.op", 2)).data == 2


def test_register_without_handler_points_to_register_spec() -> None:
    with pytest.raises(TypeError, match="register_spec"):
        OperationRegistry().register(spec(), None)  # type: ignore[call-overload]  # the mistake under test


def test_unregister_removes_and_an_unknown_id_is_an_error() -> None:
    registry = registry_of(op())
    assert "t.op" in registry
    registry.unregister("t.op")
    assert "t.op" not in registry
    assert len(registry) == 0
    with pytest.raises(RegistrationError, match=r"t\.op"):
        registry.unregister("t.op")


def test_specs_is_a_sorted_snapshot() -> None:
    registry = registry_of(*map(op, "cab"))
    before = registry.specs()
    registry.unregister("t.b")
    assert [item.name for item in before] == ["a", "b", "c"]
    assert ids(registry) == ["t.a", "t.c"]
    assert registry.get_spec("t.a") is before[0]
    assert (registry.get_spec("t.b"), registry.get_handler("t.b")) == (None, None)


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
    assert (await registry_of(op(f"t.{name}")).execute(f"t.{name}", 2)).data == 2


# --- the path of a call ------------------------------------------------------------------------------


async def test_the_input_is_validated_and_never_cast() -> None:
    seen = []

    async def look(input: Any, context: Any) -> None:
        seen.append(input)

    registry = registry_of(op("op", look, input_schema=PAIR))
    error = await error_of(registry.execute("t.op", {"a": "1"}))
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert not seen
    given = {"a": 1, "b": 2, "extra": True}
    await registry.execute("t.op", given)
    assert seen == [given]


async def test_access_is_checked_before_the_input() -> None:
    registry = registry_of(op("op", add, input_schema=PAIR, access_control={"required_scopes": ["sum"]}))
    assert (await error_of(registry.execute("t.op", {}))).code == ErrorCode.ACCESS_DENIED
    nobody = OperationContext(identity=Identity("ann", ["other"]))
    error = await error_of(registry.execute("t.op", {"a": 1, "b": 1}, nobody))
    assert error.details == {"requiredScopes": ["sum"]}
    assert "other" not in str(error)
    for context in (OperationContext(identity=Identity("ann", ["sum"])), OperationContext(trusted=True)):
        assert (await registry.execute("t.op", {"a": 1, "b": 1}, context)).data == 2


async def who(input: Any, context: OperationContext) -> Any:
    return context.request_id, context.deadline, context.identity


async def test_each_call_has_an_id_of_its_own_unless_the_caller_gives_one() -> None:
    registry = registry_of(op=who)
    assert len({(await registry.execute("t.op")).data[0] for _ in range(100)}) == 100
    assert (await registry.execute("t.op", {}, OperationContext("mine"))).data[0] == "mine"


async def test_a_context_may_be_used_for_many_calls() -> None:
    registry = registry_of(op=who)
    context = OperationContext(identity=Identity("ann"))
    first, second = [(await registry.execute("t.op", {}, context, timeout=9)).data for _ in range(2)]
    assert first[0] != second[0]
    assert (context.request_id, context.deadline) == (None, None)
    assert first[2] == second[2] == Identity("ann")


@pytest.mark.parametrize("kind", ["async", "plain", "in the loop"])
async def test_a_handler_that_exits_does_not_end_the_process(kind: str) -> None:
    def plain(input: Any, context: Any) -> None:
        raise SystemExit(3)

    handler = raising(SystemExit(3)) if kind == "async" else plain
    async with registry_of(
        Operation(spec(), handler, blocking=False if kind == "in the loop" else None)
    ) as registry:
        error = await error_of(registry.execute("t.op"))
    assert (error.code, error.details) == (ErrorCode.UNKNOWN_ERROR, {"raw": "SystemExit(3)"})


async def test_a_real_cancellation_passes_through_untouched() -> None:
    begun, events = asyncio.Event(), []

    async def wait(input: Any, context: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            events.append(error)
            raise

    task = asyncio.create_task(registry_of(op=wait).execute("t.op", timeout=60))
    await begun.wait()
    task.cancel("because")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert len(events) == 1
    assert caught.value.__cause__ is None


async def test_execute_of_a_subscription_takes_the_first_item_and_closes_it() -> None:
    closed = []

    async def count(input: Any, context: Any) -> Any:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append(True)

    registry = registry_of(op("op", count, type="subscription", output_schema={"type": "integer"}))
    assert (await registry.execute("t.op")).data == 0
    assert closed == [True]


async def test_execute_of_an_empty_subscription_is_an_execution_error() -> None:
    error = await error_of(registry_of(op("op", streaming(), type=OperationType.SUBSCRIPTION)).execute("t.op"))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "without an item" in error.message


async def test_an_object_with_an_async_call_is_a_handler() -> None:
    class Adder:
        async def __call__(self, input: Any, context: Any) -> int:
            return 5

    assert (await registry_of(op=Adder()).execute("t.op")).data == 5


async def test_a_broken_input_schema_lets_values_pass_rather_than_breaking_the_call() -> None:
    assert (await registry_of(op(input_schema={"$ref": "#/nowhere"})).execute("t.op", {"a": 1})).data == {"a": 1}


def test_an_operation_type_that_is_none_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RegistrationError, match="query, mutation, subscription"):
        spec(type="question")


# --- operations that plugins know --------------------------------------------------------------------


async def test_a_resolved_operation_that_an_interceptor_leaves_out_is_not_found() -> None:
    registry = registry_of(
        plugins=[make_plugin("big", operad_resolve_operation=lambda operation_id: op("big.one"))]
    )
    registry.use(match="big.*", change=lambda operation: None)
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await registry.execute("big.one")


async def test_an_interceptor_changes_operations_that_are_registered_until_it_is_removed() -> None:
    registry = OperationRegistry()

    def changed(operation: Operation[..., Any]) -> Operation[..., Any]:
        words = f"{operation.spec.description}!"
        return attrs.evolve(operation, spec=attrs.evolve(operation.spec, description=words))

    remove = registry.use(match="t.*", change=changed)
    registry.register(op(description="1"))
    for description in ("1!", "1"):
        registry.register_handler("t.op", echo, replace=True)
        assert [each.description for each in registry.specs()] == [description]
        assert (await registry.execute("t.op", 3)).data == 3
        remove()


@pytest.mark.parametrize(("forwarded", "ran"), [(False, None), (True, False)])
async def test_an_error_that_nothing_ran_does_not_hold_for_the_handler_around(forwarded: bool, ran: Any) -> None:
    error = CallError("BUSY", "later")
    error.ran, error.forwarded = False, forwarded
    caught = await error_of(registry_of(op=raising(error)).execute("t.op"), "^BUSY: later")
    assert (caught.ran, caught.forwarded) == (ran, False)


async def test_observers_of_the_registry_see_what_is_added_and_removed() -> None:
    seen: list[str] = []
    plugin = make_plugin(
        "watcher",
        operad_operation_added=lambda spec: seen.append(f"+{spec.id} {spec.description}"),
        operad_operation_removed=lambda spec: seen.append(f"-{spec.id} {spec.description}"),
    )
    registry = registry_of(op(description="1"), plugins=[plugin])
    registry.register(op(description="2"), replace=True)
    registry.unregister("t.op")
    assert seen == ["+t.op 1", "-t.op 1", "+t.op 2", "-t.op 2"]


async def test_an_input_is_adapted_before_it_is_checked():
    """What Python callers give beside JSON is the business of whoever made the operation."""

    async def items(input, context):
        yield input

    def adapt(input):
        return {key: str(value) for key, value in input.items() if value is not None}

    schema = from_schema(
        {"type": "object", "properties": {"day": {"type": "string"}}, "additionalProperties": False}
    )
    one = Operation(spec("one", type="query", input_schema=schema), echo, adapt=adapt)
    many = Operation(spec("many", type="subscription", input_schema=schema), items, adapt=adapt)
    registry, given = registry_of(one, many), {"day": date(2026, 1, 2), "other": None}
    assert (await registry.execute("t.one", given)).data == {"day": "2026-01-02"}
    assert await data_of(registry.subscribe("t.many", given)) == [{"day": "2026-01-02"}]
    assert given == {"day": date(2026, 1, 2), "other": None}


async def test_an_id_that_is_nearly_right_is_answered_with_the_one_that_was_meant() -> None:
    registry = registry_of(op("math.multiply"))
    with pytest.raises(CallError, match='operation "math.multipy" not found; did you mean "math.multiply"?'):
        await registry.execute("math.multipy")
    with pytest.raises(CallError, match='operation "mail.send" not found$'):
        await registry.execute("mail.send")


def test_the_owner_of_a_typed_function_is_named_by_the_function() -> None:
    @operation(namespace="math")
    async def add(a: int) -> int:
        return a

    registry = registry_of(add)
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
    registry = registry_of(Operation(spec("list"), list_page, pages=CountedPages()))
    assert [page["page"] for page in await data_of(registry.paginate("t.list"))] == [1, 2, 3]
    assert [item async for item in registry.paginate("t.list", items=True)] == [10, 11, 20, 21, 30, 31]
    assert [page["page"] for page in await data_of(registry.paginate("t.list", {"page": 2}, max_pages=1))] == [2]


async def test_an_operation_without_pages_is_one_page():
    registry = registry_of(list=list_page)
    assert [page["page"] for page in await data_of(registry.paginate("t.list"))] == [1]
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await anext(registry.paginate("t.nope"))


@pytest.mark.parametrize(("wrong", "more"), [(1, ""), (3, ""), (4, " (and 1 more)"), (6, " (and 3 more)")])
async def test_the_first_three_faults_of_an_input_are_told_and_all_listed(wrong: int, more: str) -> None:
    schema = {"properties": {f"p{number}": {"type": "integer"} for number in range(9)}}
    registry = registry_of(op(input_schema=schema))
    error = await error_of(registry.execute("t.op", {f"p{number}": "x" for number in range(wrong)}))
    faults = [f"expected integer, got str at $.p{number}" for number in range(wrong)]
    assert error.message == f'invalid input for "t.op": {"; ".join(faults[:3])}{more}'
    assert [row["message"] for row in error.details["errors"]] == faults
    assert error.details["errors"][0] == {"path": "$.p0", "message": faults[0], "keyword": "type"}


@pytest.mark.parametrize(
    ("names", "said"), [("", "0 operations in 0 namespaces"), ("a", "1 operation in 1 namespace"),
                        ("ab", "2 operations in 1 namespace")],
)  # fmt: skip
def test_the_repr_of_a_registry_counts_what_it_has(names: str, said: str) -> None:
    assert repr(registry_of(*map(op, names))) == f"OperationRegistry({said})"


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
    for_spec.register(op())
    for replace in (True, False):
        for_spec.register(op(deprecated=True), replace=replace)
        assert len(for_spec) == 0
    for_handler = leaving_out(lambda given: given.handler is not None)
    for_handler.register_spec(spec())
    assert len(for_handler) == 1
    for_handler.register_handler("t.op", add)
    assert len(for_handler) == 0


async def test_an_error_of_a_handler_is_raised_as_it_is_and_without_a_cause() -> None:
    error = await error_of(registry_of(op=raising(CallError("MINE", "no"))).execute("t.op"), "MINE")
    assert error.__cause__ is None


async def test_an_envelope_is_made_now_and_the_call_of_one_item_has_the_deadline_of_its_subscription() -> None:
    async def when(input: Any, context: OperationContext) -> float | None:
        return context.remaining()

    registry = registry_of(when=when)
    before = time.time_ns() // 1_000_000
    made = await registry.execute("t.when")
    assert made.data is None
    assert before <= made.meta.timestamp <= time.time_ns() // 1_000_000
    (item,) = await data_of(registry.subscribe("t.when", timeout=500))
    assert 0 < item <= 500


async def test_of_plugins_that_resolve_an_id_the_first_that_knows_it_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(operation_id: str) -> None:
        raise OSError("no listing")

    results = (None, 3, op("b.other"), op("a.b"))
    resolvers = [fails, *(lambda operation_id, found=found: found for found in results)]
    for order in (resolvers, resolvers[::-1]):
        made = [make_plugin(f"p{at}", operad_resolve_operation=each) for at, each in enumerate(order)]
        assert (await registry_of(plugins=made).execute("a.b", 3)).data == 3
    with pytest.raises(CallError, match="no listing"):
        await registry_of(plugins=[make_plugin("p", operad_resolve_operation=fails)]).execute("a.b")
    assert 'failed to resolve operation "a.b"' in caplog.text


def test_one_registry_streams_in_one_event_loop_after_the_other() -> None:
    registry = registry_of(count=streaming(1))
    assert [asyncio.run(data_of(registry.subscribe("t.count"))) for _ in range(2)] == [[1], [1]]
