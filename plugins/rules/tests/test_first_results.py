"""A mutation that is repeated with the same idempotency key runs once, and answers its first result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import pytest

from operad import (
    CallError,
    CallHandler,
    FirstResults,
    Identity,
    InProcessTransport,
    MemoryResults,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    ResponseEnvelope,
    from_remote,
    local_envelope,
    operation,
)
from operad.plugin import InterceptedCall
from operad_rules import first_results
from operad_testing import ResultStoreConformance

KEY = "order-1"


class Shop:
    """Counts what it sold."""

    def __init__(self) -> None:
        self.sold: list[Any] = []
        self.keys: list[str | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.order_of: Any = None

    async def order(self, input: Any, context: OperationContext) -> Any:
        self.keys.append(context.idempotency_key)
        await self.gate.wait()
        if input.get("item") == "poison":
            self.sold.append("poison")
            raise ValueError("we do not sell that to you")
        if input.get("item") == "nothing":
            self.sold.append("nothing")
            raise CallError("SOLD_OUT", "there is nothing")
        self.sold.append(input.get("item"))
        return {"number": len(self.sold)} | ({"of": self.order_of()} if self.order_of else {})


@pytest.fixture
async def shop() -> Shop:
    return Shop()


def registry_of(shop: Shop, *, store: Any = None, results: bool = True) -> OperationRegistry:
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="shop", name="order"), shop.order)
    registry.register(OperationSpec(namespace="shop", name="look", type="query"), shop.order)
    if results:
        registry.use(FirstResults(store))
    return registry


async def order(registry: OperationRegistry, item: str = "tea", **options: Any) -> Any:
    """Return the data of an order with the key."""
    return (await registry.execute("shop.order", {"item": item}, **{"idempotency_key": KEY, **options})).data


async def lost(registry: OperationRegistry, item: str = "tea", **options: Any) -> CallError:
    """Return the error of an order with the key."""
    with pytest.raises(CallError) as caught:
        await order(registry, item, **options)
    return caught.value


@asynccontextmanager
async def ordering(shop: Shop, registry: OperationRegistry) -> AsyncIterator[asyncio.Task[Any]]:
    """Yield an order that runs until the block ends."""
    shop.gate.clear()
    first = asyncio.create_task(order(registry))
    while not shop.keys:
        await asyncio.sleep(0)
    yield first
    shop.gate.set()
    assert await first == {"number": 1}


async def test_a_repetition_answers_the_first_result_and_runs_nothing(shop):
    registry = registry_of(shop)
    first = await registry.execute("shop.order", {"item": "tea"}, idempotency_key=KEY)
    again = await registry.execute("shop.order", {"item": "tea"}, idempotency_key=KEY)
    assert again == first
    assert again is not first
    bound = registry.bound(idempotency_key=KEY)
    assert (await bound.execute("shop.order", {"item": "tea"})).data == {"number": 1}
    assert shop.sold == ["tea"]
    assert shop.keys == [KEY]
    assert await order(registry, idempotency_key="other") == {"number": 2}
    assert await order(registry, idempotency_key=None) == {"number": 3}


async def test_without_it_the_key_is_the_handlers_to_use(shop):
    registry = registry_of(shop, results=False)
    for _ in range(2):
        await registry.execute("shop.order", {"item": "tea"}, OperationContext(idempotency_key=KEY))
    assert shop.keys == [KEY, KEY]


async def test_a_key_belongs_to_a_caller_and_an_operation_and_queries_run_again(shop):
    registry = registry_of(shop)
    registry.register(OperationSpec(namespace="shop", name="other"), shop.order)
    for identity in (None, Identity("ann"), Identity("bob")):
        for name in ("order", "other", "look", "look"):
            context = OperationContext(identity=identity, idempotency_key=KEY)
            await registry.execute(f"shop.{name}", {"item": 1}, context)
    assert len(shop.sold) == 12


async def test_a_repetition_with_another_input_is_refused(shop):
    registry = registry_of(shop)
    await order(registry)
    with pytest.raises(CallError, match="VALIDATION_ERROR: .*used with another input"):
        await order(registry, "coffee")
    assert shop.sold == ["tea"]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", 7])
async def test_a_key_that_is_none_is_refused(shop, key):
    with pytest.raises(CallError, match="idempotency_key: expected 1 to 255 printable characters"):
        await registry_of(shop).execute("shop.order", {}, idempotency_key=key)


async def test_a_repetition_that_comes_meanwhile_waits_for_the_first(shop):
    registry = registry_of(shop)
    async with ordering(shop, registry):
        others = [asyncio.create_task(order(registry)) for _ in range(4)]
        assert (await lost(registry, timeout=0.02)).code == "TIMEOUT"
    assert await asyncio.gather(*others) == [{"number": 1}] * 4
    assert shop.sold == ["tea"]


async def test_a_result_that_cannot_be_kept_does_not_run_again(shop):
    shop.order_of = lambda: {1, 2}
    registry = registry_of(shop)
    assert await order(registry) == {"number": 1, "of": {1, 2}}
    with pytest.raises(CallError, match="DATA_LOSS: .*ran, but its result was not kept"):
        await order(registry)
    assert shop.sold == ["tea"]


class Picky(MemoryResults):
    """Takes only some values."""

    def __init__(self, largest: int = 2**60) -> None:
        super().__init__()
        self.largest = largest

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        if len(value) > self.largest:
            raise OSError("no room")
        await super().put(name, value, seconds)


async def test_a_result_that_the_store_does_not_take_is_lost_and_does_not_run_again(shop):
    shop.order_of = lambda: "x" * 301
    registry = registry_of(shop, store=Picky(300))
    assert await order(registry) == {"number": 1, "of": "x" * 301}
    for _ in range(2):
        with pytest.raises(CallError, match="DATA_LOSS: .*ran, but its result was not kept"):
            await order(registry)
    assert shop.sold == ["tea"]


async def test_an_error_whose_details_cannot_be_kept_does_not_run_again(shop):
    shop.order_of = lambda: (_ for _ in ()).throw(CallError("SOLD_OUT", "x" * 301))
    registry = registry_of(shop, store=Picky(300))
    assert [(await lost(registry)).code for _ in range(2)] == ["SOLD_OUT", "DATA_LOSS"]
    assert shop.sold == ["tea"]


async def test_a_result_is_put_again_until_the_store_is_back(shop, caplog):
    store = Picky()
    registry = registry_of(shop, store=store)
    async with ordering(shop, registry):
        store.largest = 0
    again = asyncio.create_task(order(registry))
    store.largest = 2**60
    assert await again == {"number": 1}
    assert shop.sold == ["tea"]
    assert "the store of idempotency keys cannot be written: OSError: no room" in caplog.text


async def test_the_result_of_a_call_that_ends_while_it_is_kept_is_kept(shop):
    putting, gate = asyncio.Event(), asyncio.Event()

    class Slow(MemoryResults):
        async def put(self, name: str, value: bytes, seconds: float) -> None:
            putting.set()
            await gate.wait()
            await super().put(name, value, seconds)

    registry = registry_of(shop, store=Slow())
    first = asyncio.create_task(order(registry))
    await putting.wait()
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    gate.set()
    assert await order(registry) == {"number": 1}
    assert shop.sold == ["tea"]


async def test_a_call_without_a_deadline_keeps_its_key_for_as_long_as_it_runs(shop, monkeypatch):
    monkeypatch.setattr(first_results, "_RENEWED", 0.001)
    now = [0.0]
    registry = registry_of(shop, store=MemoryResults(clock=lambda: now[0]))
    async with ordering(shop, registry):
        for _ in range(5):
            now[0] += 200.0
            assert (await lost(registry, timeout=0.05)).code == "TIMEOUT"  # meanwhile the claim is renewed
    assert await order(registry) == {"number": 1}
    assert shop.sold == ["tea"]


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff{", b"[]", b"{}", b'{"digest": 5}', {"more": 1}, {"envelope": 5}, {"error": {"code": "A"}},
        {"error": 5, "undeclared": True},
    ],
)  # fmt: skip
async def test_a_damaged_record_is_a_data_loss_and_runs_nothing(shop, damage):
    class Damaging(MemoryResults):
        async def put(self, name: str, value: bytes, seconds: float) -> None:
            kept = json.loads(value)
            if len(kept) > 1:
                value = (
                    damage
                    if isinstance(damage, bytes)
                    else json.dumps({"digest": kept["digest"], **damage}).encode()
                )
            await super().put(name, value, seconds)

    registry = registry_of(shop, store=Damaging())
    await order(registry)
    with pytest.raises(CallError, match="DATA_LOSS: the record of this idempotency key cannot be read"):
        await order(registry)
    assert shop.sold == ["tea"]


@pytest.mark.parametrize(("item", "code"), [("poison", "EXECUTION_ERROR"), ("nothing", "SOLD_OUT")])
async def test_an_error_is_a_result_and_stays_masked(shop, item, code):
    registry = registry_of(shop)
    errors = [await lost(registry, item) for _ in range(2)]
    assert [error.code for error in errors] == [code, code]
    assert errors[0].to_wire() == errors[1].to_wire()
    assert errors[0].undeclared == errors[1].undeclared == (item == "poison")
    assert shop.sold == [item]


async def test_what_did_not_run_or_was_cancelled_may_run_again(shop):
    registry = registry_of(shop)
    full = True

    async def overloaded(call: Any, proceed: Any) -> Any:
        if full:
            raise CallError("OVERLOADED", "come back later")
        return await proceed(call)

    registry.use(overloaded)
    assert (await lost(registry)).message == "come back later"
    full = False
    shop.gate.clear()
    assert (await lost(registry, timeout=0.02)).code == "TIMEOUT"
    shop.gate.set()
    assert await order(registry) == {"number": 1}


async def test_a_store_that_fails_lets_nothing_run_and_loses_no_result(shop, caplog):
    class Broken(MemoryResults):
        when = "claim"

        async def claim(self, *arguments: Any) -> bytes | None:
            if self.when == "claim":
                raise OSError("no connection")
            return await super().claim(*arguments)

        async def put(self, *arguments: Any) -> None:
            if self.when == "put":
                raise OSError("no connection")
            await super().put(*arguments)

    store = Broken()
    registry = registry_of(shop, store=store)
    error = await lost(registry)
    assert "cannot be used: OSError: no connection" in error.message
    assert (error.code, error.details) == ("UNAVAILABLE", {"sent": False})
    assert shop.sold == []
    store.when = ""
    async with ordering(shop, registry):
        store.when = "put"
    assert "the store of idempotency keys cannot be written" in caplog.text
    store.when = ""
    assert await order(registry) == {"number": 1}


async def test_a_key_is_held_as_long_as_its_call_may_run(shop):
    """If its process dies meanwhile, the key is free again a little later; without a deadline in five minutes."""
    claimed, kept = [], []

    class Noting(MemoryResults):
        async def claim(self, *arguments: Any) -> bytes | None:
            claimed.append(arguments[-1])
            return await super().claim(*arguments)

        async def put(self, *arguments: Any) -> None:
            kept.append(arguments[-1])
            await super().put(*arguments)

    registry = registry_of(shop, store=Noting())
    await order(registry, timeout=50, idempotency_key="1")
    await order(registry, idempotency_key="2")
    assert 50 < claimed[0] <= 60
    assert claimed[1] == 300
    assert kept[1::2] == [86_400.0, 86_400.0]


async def test_results_are_kept_for_as_long_as_asked(shop):
    now, registry = [0.0], registry_of(shop, results=False)
    registry.use(FirstResults(MemoryResults(clock=lambda: now[0]), seconds=7.0))
    assert [(await order(registry))["number"] for now[0] in (0.0, 6.9, 7.0)] == [1, 1, 2]


async def test_a_repetition_waits_no_longer_than_the_first_call_may_run(monkeypatch):
    monkeypatch.setattr(first_results, "_GRACE", 0.02)
    rule, gate = FirstResults(MemoryResults(clock=lambda: 0.0)), asyncio.Event()
    spec = OperationSpec(namespace="shop", name="order")
    call = InterceptedCall(spec, {}, OperationContext(idempotency_key=KEY, deadline=5.0))

    async def proceed(call: InterceptedCall) -> ResponseEnvelope[Any]:
        await gate.wait()
        return local_envelope(1, "shop.order")

    first = asyncio.create_task(rule(call, proceed))
    await asyncio.sleep(0)
    with pytest.raises(CallError, match="the first call with this idempotency key is still running") as caught:
        await rule(call, proceed)
    assert (caught.value.code, caught.value.details) == ("UNAVAILABLE", {"sent": False})
    gate.set()
    assert (await first).data == 1


async def test_an_envelope_of_any_kind_is_a_first_result():
    registry = OperationRegistry()
    strange = registry.plugins.envelope_kinds.from_wire({"data": 5, "meta": {"source": "strange", "a": 1}})
    ran = []

    async def order(input: Any, context: OperationContext) -> Any:
        ran.append(input)
        return strange

    registry.register(OperationSpec(namespace="shop", name="order"), order)
    registry.use(FirstResults())
    for _ in range(2):
        found = await registry.execute("shop.order", {}, idempotency_key=KEY)
        assert (found.data, found.meta.source, found.meta.fields["a"]) == (5, "strange", 1)
    assert len(ran) == 1


async def test_two_registries_may_share_a_store(shop):
    store = MemoryResults()
    for _ in range(2):
        assert await order(registry_of(shop, store=store)) == {"number": 1}


class Away(MemoryResults):
    """Where the memory of another process would be."""

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        raise OSError("no connection")


class TestMemoryResults(ResultStoreConformance):
    @pytest.fixture(autouse=True)
    def stores(self) -> None:
        self.shared: dict[str, MemoryResults] = {}

    def store(self, name: str) -> AbstractAsyncContextManager[MemoryResults]:
        return nullcontext(self.shared.setdefault(name, MemoryResults()))

    def away(self) -> AbstractAsyncContextManager[MemoryResults]:
        return nullcontext(Away())


class Forgetful(MemoryResults):
    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        return None


class Chatty(Away):
    def __repr__(self) -> str:
        return f"<store at pigeon://:{ResultStoreConformance.secret}@127.0.0.1>"


@pytest.mark.parametrize(
    ("new", "away", "failing"),
    [
        (Forgetful, Away, "test_two_workers_run_a_repeated_request_once"),
        (Forgetful, Away, "test_a_name_is_claimed_once_replaced_freed_and_expires"),
        (MemoryResults, MemoryResults, "test_a_server_that_is_away_lets_nothing_run"),
        (MemoryResults, Chatty, "test_a_server_that_is_away_lets_nothing_run"),
    ],
)
def test_a_store_with_a_fault_fails_the_kits_test_that_is_meant_for_it(new, away, failing):
    shared = new()

    class Faulty(ResultStoreConformance):
        def store(self, name: str) -> AbstractAsyncContextManager[MemoryResults]:
            return nullcontext(shared)

        def away(self) -> AbstractAsyncContextManager[MemoryResults]:
            return nullcontext(away())

    with pytest.raises(AssertionError):
        getattr(Faulty(), failing)()


async def test_memory_is_bounded_results_expire_and_what_is_over_goes_first():
    now = [0.0]
    store = MemoryResults(2, clock=lambda: now[0])
    await store.put("short", b"1", 1.0)
    await store.put("long", b"2", 9.0)
    now[0] = 1.0
    assert await store.claim("new", b"3", 8.0) is None  # "short" has expired and makes room
    assert await store.claim("long", b"", 9.0) == b"2"
    await store.put("long", b"4", 9.0)  # now it is the newest
    await store.put("newest", b"5", 9.0)
    assert len(store) == 2
    assert [await store.claim(name, b"", 9.0) for name in ("long", "newest")] == [b"4", b"5"]
    now[0] = 9.9
    assert await store.claim("long", b"6", 9.0) == b"4"
    now[0] = 10.0
    assert await store.claim("long", b"6", 9.0) is None
    await store.drop("long")
    await store.drop("long")
    assert len(store) == 1


async def test_the_key_crosses_the_call_protocol_and_a_federation(shop):
    transport = InProcessTransport()
    async with CallHandler(registry_of(shop), transport), PendingRequestMap(transport) as calls:
        for _ in range(2):
            answer = await calls.call("shop.order", {"item": "tea"}, idempotency_key=KEY, timeout=5)
            assert answer.data == {"number": 1}
        gateway = OperationRegistry()
        remote = await from_remote(transport)
        for item in remote.operations:
            gateway.register(item)
        assert await order(gateway) == {"number": 1}
        await remote.aclose()
    assert shop.keys == [KEY]


async def test_nested_calls_have_keys_of_their_own(shop):
    @operation(namespace="shop")
    async def both(context: OperationContext) -> Any:
        await context.env["shop.order"]({"item": "a"})
        return (await context.env["shop.order"]({"item": "b"})).data

    registry = registry_of(shop)
    registry.register(both)
    for _ in range(2):
        assert (await registry.execute("shop.both", {}, idempotency_key=KEY)).data == {"number": 2}
    assert shop.keys == [None, None]


async def test_a_view_takes_keys(shop):
    view = registry_of(shop).view(prefix="x")
    for _ in range(2):
        answer = await view.execute("x.shop.order", {"item": "tea"}, idempotency_key=KEY)
        assert answer.data == {"number": 1}
