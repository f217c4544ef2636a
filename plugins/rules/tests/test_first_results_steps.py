"""The parts of first results: the store in memory, whose key it is, waiting for the first call."""

import asyncio
from types import SimpleNamespace

import pytest

from operad import (
    CallError,
    ErrorCode,
    Identity,
    OperationContext,
    OperationSpec,
    Plugins,
    ResponseEnvelope,
    local_envelope,
)
from operad_rules import FirstResults, MemoryResults, first_results


def spec(**more):
    return OperationSpec(namespace="t", name="op", **more)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


async def test_a_store_in_memory_keeps_each_result_for_its_time():
    clock = Clock()
    store = MemoryResults(2, clock=clock)
    assert await store.claim("a", b"1", 5.0) is None
    clock.now = 4.9
    assert await store.claim("a", b"2", 5.0) == b"1"
    clock.now = 5.0
    assert await store.claim("a", b"2", 5.0) is None
    assert await store.claim("a", b"3", 5.0) == b"2"
    await store.drop("a")
    await store.drop("a")
    assert len(store) == 0


async def test_what_is_put_again_is_the_newest():
    clock = Clock()
    store = MemoryResults(3, clock=clock)
    for name in "aba":
        await store.put(name, b"1", 5.0)
    assert list(store._kept) == ["b", "a"]
    clock.now = 5.0
    await store.put("c", b"1", 5.0)
    await store.put("d", b"1", 5.0)
    assert list(store._kept) == ["c", "d"], "what ends now is over"


async def test_a_full_store_lets_go_what_is_over_and_then_the_oldest():
    clock = Clock()
    store = MemoryResults(2, clock=clock)
    await store.put("short", b"1", 1.0)
    await store.put("long", b"2", 9.0)
    clock.now = 1.0
    await store.put("new", b"3", 9.0)
    assert list(store._kept) == ["long", "new"]
    await store.put("long", b"4", 9.0)
    assert list(store._kept) == ["new", "long"]
    await store.put("newest", b"5", 9.0)
    assert list(store._kept) == ["long", "newest"]


def call_of(key="k", input=5, identity=None, type_="mutation", deadline=None):
    context = OperationContext(idempotency_key=key, identity=identity, deadline=deadline)
    return SimpleNamespace(spec=spec(type=type_), input=input, context=context)


class Work:
    def __init__(self, *ends):
        self.ends, self.runs = list(ends), 0

    async def __call__(self, call):
        self.runs += 1
        end = self.ends.pop(0) if self.ends else self.runs
        if isinstance(end, BaseException):
            raise end
        return end if isinstance(end, ResponseEnvelope) else local_envelope(end, "t.op")


async def test_a_key_belongs_to_an_identity_and_counts_for_mutations_alone():
    first, work = FirstResults(), Work()
    ann, bob = (Identity(id=name, scopes=frozenset()) for name in ("ann", "bob"))
    seen = [
        (await first(call, work)).data
        for call in (
            call_of(), call_of(), call_of("other"), call_of(identity=ann), call_of(identity=bob),
            call_of(identity=ann), call_of(None), call_of(None), call_of(type_="query"), call_of(type_="query"),
        )
    ]  # fmt: skip
    assert seen == [1, 1, 2, 3, 4, 3, 5, 6, 7, 8]


async def test_a_key_with_another_input_is_refused():
    first, work = FirstResults(), Work()
    await first(call_of(), work)
    with pytest.raises(CallError, match="this idempotency key was used with another input") as caught:
        await first(call_of(input=6), work)
    assert (caught.value.code, work.runs) == (ErrorCode.VALIDATION_ERROR, 1)
    assert caught.value.details == {"message": caught.value.message}


async def test_an_error_is_a_first_result_unless_nothing_ran():
    masked = CallError("BROKEN", "it is", {"a": 1})
    masked.undeclared = True
    first, work = FirstResults(), Work(masked, CallError(ErrorCode.OVERLOADED, "later"))
    for _ in range(2):
        with pytest.raises(CallError) as caught:
            await first(call_of(), work)
        assert (caught.value.code, caught.value.message, caught.value.details) == ("BROKEN", "it is", {"a": 1})
        assert caught.value.undeclared is True
    assert work.runs == 1
    with pytest.raises(CallError):
        await first(call_of("k2"), work)
    assert (await first(call_of("k2"), work)).data == 3


async def test_what_was_cancelled_may_run_again():
    first, work = FirstResults(), Work(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await first(call_of(), work)
    assert (await first(call_of(), work)).data == 2


async def test_an_envelope_of_any_kind_is_a_first_result():
    strange = Plugins().envelope_kinds.from_wire({"data": 5, "meta": {"source": "strange", "a": 1}})
    first, work = FirstResults(), Work(strange)
    await first(call_of(), work)
    again = await first(call_of(), work)
    assert (again.data, again.meta.source, again.meta.fields["a"], work.runs) == (5, "strange", 1, 1)


async def test_a_repetition_waits_for_the_first_one_and_no_longer_than_it_may_run(monkeypatch):
    now = SimpleNamespace(at=1_000.0)
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        now.at += seconds

    by_hand = SimpleNamespace(time=lambda: now.at, monotonic=lambda: now.at)
    monkeypatch.setattr(first_results, "time", by_hand)
    monkeypatch.setattr(first_results, "asyncio", SimpleNamespace(sleep=sleep))
    claims = []

    class Store(MemoryResults):
        async def claim(self, name, value, seconds):
            claims.append(seconds)
            return await super().claim(name, value, seconds)

    store = Store(clock=lambda: 0.0)
    first = FirstResults(store)
    await first._claimed("n", "d", call_of())
    assert claims == [300.0]
    with pytest.raises(CallError, match="the first call with this idempotency key still runs") as caught:
        await first._claimed("n", "d", call_of(deadline=1_002_000.0))
    assert (caught.value.code, caught.value.details) == (ErrorCode.UNAVAILABLE, {"sent": False})
    assert claims[1] == 12.0
    assert pauses[:7] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5]
    assert set(pauses[7:]) == {0.5}
    assert 12.0 < now.at - 1_000.0 <= 12.5
    claims.clear()
    await first._claimed("m", "d", call_of(deadline=5.0))
    assert claims == [10.0]


async def test_results_are_kept_for_as_long_as_asked():
    clock = Clock()
    work, first = Work(), FirstResults(MemoryResults(clock=clock), seconds=7.0)
    await first(call_of(), work)
    clock.now = 6.9
    assert (await first(call_of(), work)).data == 1
    clock.now = 7.0
    assert (await first(call_of(), work)).data == 2
    day = FirstResults(MemoryResults(clock=clock))
    assert day._seconds == 86_400.0
