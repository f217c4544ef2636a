"""operad.sync: calls that wait, from any thread, beside any loop, clean at the end and after a fork."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

import operad
from core.tests.kit import ids, registry_of, spec
from operad import CallError, CallHandler, InProcessTransport, SourceError, operation
from operad.plugin import Source, SourceContext, SourceSession
from operad.sync import OperationRegistry, PendingRequestMap
from operad.sync.portal import Opened, Portal, portal
from operad_testing import make_plugin, plugins_of


def values_of(envelopes: Any) -> list[Any]:
    return [envelope.data for envelope in envelopes]


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")


@attrs.frozen
class Point:
    x: int


@operation(namespace="t", type="query")
async def add(a: int, b: int = 1) -> int:
    return a + b


@operation(namespace="t")
async def points(count: int) -> AsyncIterator[Point]:
    try:
        for number in range(count):
            yield Point(number)
    finally:
        CLOSED.append(count)


@operation(namespace="t")
async def slow() -> None:
    try:
        await asyncio.sleep(30)
    finally:
        CLOSED.append(-1)


@operation(namespace="t")
async def variable() -> str:
    return VARIABLE.get()


CLOSED: list[int] = []


@pytest.fixture(scope="module", autouse=True)
def _portal() -> None:
    """Its thread stays for the whole process, and is no leak of one test."""
    portal()


@pytest.fixture
def registry() -> Iterator[OperationRegistry]:
    CLOSED.clear()
    with OperationRegistry() as registry:
        for item in (add, points, slow, variable):
            registry.register(item)
        yield registry


def until_closed(number: int) -> None:
    ends = time.monotonic() + 30
    while number not in CLOSED:
        assert time.monotonic() < ends, "it was not closed"
        time.sleep(0.001)


def test_calls_answer_what_the_asynchronous_registry_answers(registry: OperationRegistry) -> None:
    envelope = registry.execute("t.add", {"a": 1})
    assert (envelope.data, envelope.meta.operation_id) == (2, "t.add")
    assert registry.call(add, 1, b=2) == 3
    assert registry.execute(add, {"a": 5}).data == 6
    with pytest.raises(CallError, match="^VALIDATION_ERROR"):
        registry.execute("t.add", {"a": "x"})
    with pytest.raises(CallError, match="^TIMEOUT"):
        registry.execute("t.slow", timeout=0.02)


def test_streams_are_iterators_and_close_where_a_loop_is_left(registry: OperationRegistry) -> None:
    assert values_of(registry.subscribe("t.points", {"count": 3})) == [
        {
            "x": number,
        }
        for number in range(3)
    ]
    assert list(registry.stream(points, 2)) == [Point(0), Point(1)]
    for point in registry.stream(points, 7):
        assert point == Point(0)
        break
    until_closed(7)
    with registry.stream(points, count=8) as stream:
        assert next(stream) == Point(0)
    assert 8 in CLOSED
    with pytest.raises(StopIteration):
        next(stream)
    stream.close()
    assert values_of(registry.paginate("t.add", {"a": 1})) == [2]
    with pytest.raises(CallError, match="invalid input"):
        next(iter(registry.subscribe("t.points", {"count": "many"})))


def test_a_client_and_bound_calls_wait_too(registry: OperationRegistry) -> None:
    client = registry.client("t")
    assert client.add(a=1, timeout=5.0) == 2
    assert client["add"]({"a": 1, "b": 5}) == 6
    assert "add" in dir(client)
    with registry.client("t").points(count=3) as points_:
        assert next(points_) == {"x": 0}
    with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
        client.nothing()

    keyed = registry.bound(context=operad.OperationContext(trusted=True), timeout=5.0, idempotency_key="k")
    assert keyed.call(add, 1, b=2) == 3
    assert keyed.execute("t.add", {"a": 1}).data == 2
    assert values_of(keyed.subscribe("t.add", {"a": 1})) == [2]
    assert keyed.client("t").add(a=2) == 3


def test_specs_and_handlers_are_registered_apart_and_calls_are_observed(registry: OperationRegistry) -> None:
    async def double(input: Any, context: Any) -> Any:
        return input["n"] * 2

    registry.register_handler("u.double", double)
    registry.register_spec(spec("u.double"))
    assert registry.get_handler("u.double") is double
    seen: list[str] = []
    forget = registry.observe(lambda call: seen.append(call.operation_id))
    for _ in range(2):
        assert registry.execute("u.double", {"n": 4}).data == 8
        forget()
    assert seen == ["u.double"]


def test_many_threads_share_it(registry: OperationRegistry) -> None:
    def work(number: int) -> list[int]:
        registry.register(operad.Operation(spec(f"n.{number}"), add.handler))
        found = [registry.call(add, number, other) for other in range(20)]
        return found + [point.x for point in registry.stream(points, 3)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(40)))
    assert results == [[number + other for other in range(20)] + [0, 1, 2] for number in range(40)]
    assert len(registry) == len(registry.specs()) == 44


async def test_it_works_where_a_loop_runs_already(registry: OperationRegistry) -> None:
    assert registry.call(add, 1) == 2
    assert list(registry.stream(points, 1)) == [Point(0)]


def test_a_plain_handler_may_use_it_and_an_asynchronous_one_is_told_to_await(registry: OperationRegistry) -> None:
    @operation(namespace="t")
    def outer(a: int) -> int:
        return registry.call(add, a)

    @operation(namespace="t")
    async def wrong(a: int) -> int:
        return registry.call(add, a)

    registry.register(outer)
    registry.register(wrong)
    assert registry.call(outer, 1) == 2
    with pytest.raises(CallError, match="in an async handler use `await`"):
        registry.call(wrong, 1)


def test_a_call_sees_the_context_variables_of_its_thread(registry: OperationRegistry) -> None:
    def here() -> str:
        VARIABLE.set("here")
        return registry.call(variable)

    assert contextvars.copy_context().run(here) == "here"


def test_looking_up_views_and_interceptors(registry: OperationRegistry) -> None:
    assert "t.add" in registry
    spec = registry.get_spec("t.add")
    assert spec is not None
    assert registry.describe("t.add") is spec
    assert registry.search("add")[0].id == "t.add"
    view = registry.view(include="t.add", prefix="x")
    assert ids(view) == ["x.t.add"]
    assert view.execute("x.t.add", {"a": 1}).data == 2
    view.close()

    async def refuse(call: Any, proceed: Any) -> Any:
        raise CallError("CLOSED", "not today")

    remove = registry.use(refuse, match="t.add")
    with pytest.raises(CallError, match="not today"):
        registry.call(add, 1)
    remove()
    assert registry.call(add, 1) == 2
    registry.unregister("t.add")
    assert "t.add" not in registry


def test_an_idempotency_key_reaches_the_handler(registry: OperationRegistry) -> None:
    async def run(input: Any, context: Any) -> Any:
        return context.idempotency_key

    registry.register(spec("run"), run)
    assert registry.execute("t.run", idempotency_key="k").data == "k"


@attrs.frozen
class Config:
    name: str = "n"


def test_sources_load_and_close_with_it(tmp_path: Path) -> None:
    closed: list[str] = []

    class Session(SourceSession):
        async def aclose(self) -> None:
            closed.append("closed")

    async def load(config: Config, context: SourceContext) -> SourceSession:
        if config.name == "bad":
            raise SourceError("no such thing")
        return Session([operad.Operation(spec(f"s.{config.name}"), add.handler)])

    plugins = plugins_of(make_plugin("p", operad_sources=[Source("mine", load, Config)]))
    with OperationRegistry(plugins) as registry:
        assert [spec.id for spec in registry.load("mine")] == ["s.n"]
        assert registry.execute("s.n", {"a": 1}).data == 2
    assert closed == ["closed"]
    registry.close()
    (tmp_path / "operad.toml").write_text('[sources.a]\ntype = "mine"\n[sources.b]\ntype = "mine"\nname = "bad"\n')
    with OperationRegistry.from_config(tmp_path, plugins) as registry:
        assert ids(registry) == ["s.n"]
        assert [failure.name for failure in registry.failures] == ["b"]
    assert closed == ["closed", "closed"]


def test_the_call_map_reaches_what_is_served_and_ends_with_it() -> None:
    transport = InProcessTransport()

    async def serve() -> CallHandler:
        return await CallHandler(registry_of(add, points), transport).__aenter__()

    handler = portal().run(serve())
    with PendingRequestMap(transport, timeout=5.0) as calls:
        assert calls.call("t.add", {"a": 1}).data == 2
        assert values_of(calls.subscribe("t.points", {"count": 2})) == [{"x": 0}, {"x": 1}]
        with pytest.raises(CallError):
            calls.call("t.absent", {}, timeout=1.0)
    calls.close()
    portal().run(handler.__aexit__(None, None, None))


async def test_an_asynchronous_registry_in_a_second_loop_is_told_so() -> None:
    registry = registry_of(add)
    assert (await registry.execute("t.add", {"a": 1})).data == 2

    def elsewhere() -> None:
        asyncio.run(registry.execute("t.add", {"a": 1}))

    with pytest.raises(RuntimeError, match="used in another event loop already"):
        await asyncio.to_thread(elsewhere)
    assert (await registry.execute("t.add", {"a": 1})).data == 2


def test_a_registry_may_follow_from_one_loop_to_the_next() -> None:
    registry = registry_of(add)
    for _ in range(2):
        assert asyncio.run(registry.execute("t.add", {"a": 1})).data == 2


# --- processes -------------------------------------------------------------------------------------------

PROGRAM = r"""
import asyncio, os, signal, sys, threading, time
import attrs
from operad import Operation, OperationSpec, operation
from operad.plugin import Source, SourceSession
from operad.sync import OperationRegistry
from operad_testing import make_plugin, plugins_of

@operation(namespace="t")
async def add(a: int) -> int:
    return a + 1

@operation(namespace="t")
def plain(a: int) -> int:
    return a + 1

@operation(namespace="t")
async def slow() -> None:
    try:
        begun.set()
        await asyncio.sleep(30)
    finally:
        os.write(1, b"cancelled\n")
        ended.set()

class Session(SourceSession):
    def __init__(self, operations):
        super().__init__(operations)
        self.loop = asyncio.get_running_loop()

    async def aclose(self):
        await asyncio.sleep(0.01)
        print("closed" if asyncio.get_running_loop() is self.loop else "closed elsewhere", flush=True)

@attrs.frozen
class Config: ...

async def load(config, context):
    return Session([add])

registry = OperationRegistry(plugins_of(make_plugin("p", operad_sources=[Source("mine", load, Config)])))
registry.register(slow)
registry.register(plain)
begun, ended = threading.Event(), threading.Event()
"""


def run(body: str) -> list[str]:
    code = PROGRAM + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_what_is_open_when_the_process_ends_is_closed() -> None:
    assert run("""
        registry.load("mine")
        print(registry.execute("t.add", {"a": 1}).data)
        registry.subscribe("t.slow")
    """) == ["2", "closed"]


def test_it_is_closed_also_where_no_thread_starts_any_more() -> None:
    """As on Python 3.12.0 and 3.12.1, when a process ends."""
    assert run("""
        registry.load("mine")
        def start(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        threading.Thread.start = start
    """) == ["closed"]


def test_plain_functions_that_call_the_registry_of_their_caller_end_however_many_run() -> None:
    with OperationRegistry(max_threads=4) as registry:

        @operation(namespace="n")
        def chain(number: int) -> int:
            return number and 1 + int(registry.execute("n.chain", {"number": number - 1}).data)

        registry.register(chain)
        assert registry.execute("n.chain", {"number": 60}, timeout=30).data == 60
        with ThreadPoolExecutor(64) as callers:
            results = list(
                callers.map(lambda _: registry.execute("n.chain", {"number": 3}, timeout=30).data, range(200))
            )
        assert results == [3] * 200


def test_one_that_does_not_close_keeps_no_other_one_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One raises, one waits forever."""
    closed = []

    class Kept(Opened):
        def __init__(self, close: Callable[[], Any]) -> None:
            self.asynchronous = self
            self.aclose = close

    async def wait() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ValueError

    async def close() -> None:
        closed.append(1)

    async def items() -> AsyncIterator[int]:
        try:
            yield 0
        finally:
            closed.append(2)

    async def begin() -> int:
        return await anext(left)

    own = Portal()
    left = items()
    own.run(begin())
    kept = [Kept(wait), Kept(close), Kept(fail), Kept(close)]
    for each in (*kept, forgotten := Kept(fail)):
        own.keep(each)
    own.forget(forgotten)
    monkeypatch.setattr("operad.sync.portal._EXIT_SECONDS", 0.1)
    own.stop()
    assert closed == [1, 1, 2]
    assert caplog.text.count("at the end of the process failed") == 2
    with pytest.raises(RuntimeError, match="accepts no more calls"):
        own.run(wait())
    own.soon(wait)  # nothing, and no error


def test_an_interrupt_ends_the_wait_and_the_call() -> None:
    assert run("""
        def interrupt():
            begun.wait(20)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            registry.execute("t.slow")
        except KeyboardInterrupt:
            os.write(1, b"interrupted\\n")
        ended.wait(20)
        print(registry.execute("t.plain", {"a": 1}).data)
    """) in (["interrupted", "cancelled", "2"], ["cancelled", "interrupted", "2"])


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_forked_child_has_a_loop_of_its_own_and_leaves_the_parents_connections_alone() -> None:
    assert run("""
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: a process with threads forks
        print(registry.execute("t.plain", {"a": 1}).data, flush=True)
        def child(body):
            pid = os.fork()
            if pid == 0:
                body()
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(pid, 0)
        child(lambda: print("child", registry.execute("t.plain", {"a": 2}).data))
        registry.load("mine")
        def loaded():
            try:
                registry.execute("t.add", {"a": 1})
            except RuntimeError as error:
                print("child", "open one in each process" in str(error))
            registry.close()
        child(loaded)
        print(registry.execute("t.add", {"a": 3}).data)
    """) == ["2", "child 3", "child True", "4", "closed"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_stream_that_a_forked_child_inherits_says_so_and_goes_on_in_the_parent() -> None:
    assert run("""
        import warnings
        from collections.abc import AsyncIterator
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: a process with threads forks

        @operation(namespace="t")
        async def numbers() -> AsyncIterator[int]:
            for number in range(9):
                yield number

        registry.register(numbers)
        remove = registry.observe(lambda call: None)
        stream = registry.stream(numbers)
        print(next(stream), flush=True)
        pid = os.fork()
        if pid == 0:
            for what in (lambda: next(stream), remove):
                try:
                    what()
                except RuntimeError as error:
                    print("child", "before the process forked" in str(error))
            with stream:
                pass
            stream.close()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        print(next(stream))
        stream.close()
    """) == ["0", "child True", "child True", "1"]
