"""`ResultStoreConformance`: requirements for every `ResultStore`."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AbstractAsyncContextManager
from typing import Any

from operad import OperationRegistry
from operad.context import OperationContext
from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec
from operad.plugin import ResultStore
from operad_testing._running import in_loop


class ResultStoreConformance:
    """Requirements for every `ResultStore`, in which `operad_rules.FirstResults` stores results.

    ::

        class TestPigeonResults(ResultStoreConformance):
            def store(self, name):
                return PigeonResults(shared_loft.url, prefix=name)

            def away(self):
                return PigeonResults(f"pigeon://:{self.secret}@127.0.0.1:9")

    The tests are plain functions that run their own event loop, so they need no pytest plugin.
    """

    secret = "s3cret"  # noqa: S105  # not a real secret
    """The password in the URL of `away`."""

    def store(self, name: str) -> AbstractAsyncContextManager[ResultStore]:
        """Return a context with an open store. Stores with the same ``name`` share their results."""
        raise NotImplementedError("the suite needs a store; override store()")

    def away(self) -> AbstractAsyncContextManager[ResultStore]:
        """Return a context with a store that cannot reach its server. Its URL has `secret` as the password.

        Each method of the store must raise an exception within seconds.
        """
        raise NotImplementedError("the suite needs a store without a server; override away()")

    @in_loop
    async def test_two_workers_run_a_repeated_request_once(self) -> None:
        """A second worker with the same key returns the first result, and rejects the key with another input."""
        runs: list[str] = []
        started, gate = asyncio.Event(), asyncio.Event()

        def worker(name: str, store: ResultStore) -> OperationRegistry:
            async def order(input: Any, context: OperationContext) -> Any:
                runs.append(name)
                started.set()
                await gate.wait()
                return {"by": name}

            return _served(store, order)

        shared = secrets.token_hex(8)
        async with self.store(shared) as one, self.store(shared) as two:
            first, second = worker("one", one), worker("two", two)
            running = asyncio.create_task(first.execute("shop.order", {}, idempotency_key="k"))
            await started.wait()
            waiting = asyncio.create_task(second.execute("shop.order", {}, idempotency_key="k"))
            await asyncio.sleep(0.02)
            gate.set()
            assert [(await running).data, (await waiting).data] == [{"by": "one"}, {"by": "one"}]
            assert (await second.execute("shop.order", {}, idempotency_key="k")).data == {"by": "one"}
            refused = await _refusal(second, {"more": 1})
            assert "another input" in refused.message
        assert runs == ["one"]

    @in_loop
    async def test_a_name_is_claimed_once_replaced_freed_and_expires(self) -> None:
        """One of several concurrent claims of a name succeeds. A value can be replaced or dropped, and expires."""
        async with self.store(secrets.token_hex(8)) as store:
            claims = await asyncio.gather(*(store.claim("a", str(number).encode(), 60) for number in range(20)))
            assert claims.count(None) == 1
            assert {claim for claim in claims if claim is not None} == {str(claims.index(None)).encode()}
            await store.put("a", b"result", 60)
            assert await store.claim("a", b"x", 60) == b"result"
            await store.drop("a")
            assert await store.claim("a", b"short", 0.01) is None
            await asyncio.sleep(0.03)
            again = await asyncio.gather(*(store.claim("a", b"again", 60) for _ in range(10)))
            assert again.count(None) == 1
            assert set(again) == {None, b"again"}

    @in_loop
    async def test_a_result_that_cannot_be_kept_does_not_run_again(self) -> None:
        """A repeated request does not run again, even if its result has no JSON form or is too large to store."""
        runs: list[int] = []
        results: list[Any] = [{1, 2}, "x" * 1_200_000]

        async def order(input: Any, context: OperationContext) -> Any:
            runs.append(1)
            return results[len(runs) - 1]

        async with self.store(secrets.token_hex(8)) as store:
            registry = _served(store, order)
            for number in range(2):
                key = f"k{number}"
                await registry.execute("shop.order", {}, idempotency_key=key, timeout=60)
                try:
                    again = await registry.execute("shop.order", {}, idempotency_key=key, timeout=60)
                except CallError as error:
                    if error.code != ErrorCode.DATA_LOSS:
                        raise
                else:
                    assert again.data == results[number]
        assert len(runs) == 2

    @in_loop
    async def test_a_server_that_is_away_lets_nothing_run(self) -> None:
        """A request does not run if the store cannot be reached, and errors do not contain the password."""
        runs: list[int] = []

        async def order(input: Any, context: OperationContext) -> None:
            runs.append(1)

        async with self.away() as store:
            refused = await _refusal(_served(store, order), {})
            assert refused.code == ErrorCode.UNAVAILABLE
            assert self.secret not in f"{refused} {store!r}"
        assert runs == []


def _served(store: ResultStore, handler: Any) -> OperationRegistry:
    from operad_rules import FirstResults  # the tests of a store need it, other tests do not

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="shop", name="order"), handler)
    registry.use(FirstResults(store))
    return registry


async def _refusal(registry: OperationRegistry, input: Any) -> CallError:
    try:
        await registry.execute("shop.order", input, idempotency_key="k")
    except CallError as error:
        return error
    raise AssertionError("expected the call to raise a CallError, but it succeeded")
