"""A model of the call protocol: whatever happens in whatever order, each call ends once and nothing is left."""
# ruff: noqa: PT017  # the model branches on what a read raises

import asyncio
from contextlib import contextmanager

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from operad import CallError, CallHandler, InProcessTransport, OperationRegistry, OperationSpec, PendingRequestMap


class Server:
    """Handlers that do what the model tells them, when it tells them."""

    def __init__(self, transport):
        self.gates = {}
        self.running = set()
        self.runs = []
        registry = OperationRegistry()

        @contextmanager
        def running(name):
            self.runs.append(name)
            self.running.add(name)
            try:
                yield name
            finally:
                self.running.discard(name)

        async def single(input, context):
            with running(input["name"]) as name:
                gate = self.gates[name] = asyncio.get_running_loop().create_future()
                if await gate == "fail":
                    raise CallError("FAILED", name)
            return name

        async def stream(input, context):
            with running(input["name"]) as name:
                for number in range(input["to"]):
                    yield number
                if input["then"] == "fail":
                    raise CallError("FAILED", name)

        registry.register(OperationSpec(namespace="m", name="single", type="mutation"), single)
        registry.register(OperationSpec(namespace="m", name="stream", type="subscription"), stream)
        self.handler = CallHandler(registry, transport, drain_timeout=0.01)


class CallMapModel(RuleBasedStateMachine):
    """Two handlers, one call map; calls and streams that are answered, failed, cancelled, left, or lost."""

    calls_made = Bundle("calls_made")
    streams_made = Bundle("streams_made")

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.transport = InProcessTransport(strict=True)
        self.servers = []
        self.names = 0
        self.endings = {}
        self.tasks = {}
        self.streams = {}
        self.calls = PendingRequestMap(self.transport, credit=4)
        self.run(self.calls.open())
        self.start_server()
        self.start_server()

    def run(self, awaitable):
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, 10))

    def settle(self):
        async def turns():
            for _ in range(8):
                await asyncio.sleep(0)

        self.run(turns())

    def name(self):
        self.names += 1
        return f"n{self.names}"

    @rule()
    def start_server(self):
        if len(self.servers) < 3:
            server = Server(self.transport)
            self.run(server.handler.open())
            self.servers.append(server)

    @rule(number=st.integers(0, 2), politely=st.booleans())
    def stop_server(self, number, politely):
        """A handler closes, or its link is cut under it."""
        if number >= len(self.servers):
            return
        server = self.servers.pop(number)
        if not politely:
            self.run(server.handler.link.close())
        self.run(server.handler.aclose())
        self.settle()
        assert not server.running
        assert server.handler.active == 0

    @rule(target=calls_made)
    def call(self):
        name = self.name()

        async def make():
            try:
                ending = (await self.calls.call("m.single", {"name": name})).data
            except CallError as error:
                ending = str(error.code)
            self.endings.setdefault(name, []).append(ending)

        self.tasks[name] = self.loop.create_task(make())
        self.settle()
        return name

    @rule(name=consumes(calls_made), ending=st.sampled_from(["answer", "fail"]))
    def end(self, name, ending):
        for server in self.servers:
            gate = server.gates.get(name)
            if gate is not None and not gate.done():
                gate.set_result(ending)
        self.settle()
        task = self.tasks.pop(name)
        assert task.done()
        (seen,) = self.endings[name]
        assert seen in ((name if ending == "answer" else "FAILED"), "UNAVAILABLE", "OPERATION_NOT_FOUND")

    @rule(name=consumes(calls_made))
    def cancel(self, name):
        task = self.tasks.pop(name)
        ended = task.done()
        task.cancel()
        self.settle()
        assert task.done()
        assert len(self.endings.get(name, ())) == (1 if ended else 0)
        assert not any(name in server.running for server in self.servers)

    @rule(target=streams_made, to=st.integers(0, 30), then=st.sampled_from(["end", "fail"]))
    def subscribe(self, to, then):
        name = self.name()
        stream = self.calls.subscribe("m.stream", {"name": name, "to": to, "then": then})
        self.streams[name] = [stream, 0, to, then]
        return name

    @rule(name=streams_made, count=st.integers(1, 12))
    def read(self, name, count):
        if name not in self.streams:
            return
        subscription, seen, to, then = self.streams[name]
        for _ in range(count):
            try:
                item = self.run(anext(subscription)).data
            except StopAsyncIteration:
                assert (seen, then) == (to, "end")
            except CallError as error:
                assert error.code in ("UNAVAILABLE", "OPERATION_NOT_FOUND") or (seen, then) == (to, "fail")
            else:
                assert item == seen, "an item was lost, or came out of order"
                seen += 1
                self.streams[name][1] = seen
                continue
            del self.streams[name]
            return

    @rule(name=consumes(streams_made))
    def leave(self, name):
        if name in self.streams:
            self.run(self.streams.pop(name)[0].aclose())
            self.settle()
            assert not any(name in server.running for server in self.servers)

    @invariant()
    def each_run_is_one(self):
        runs = [name for server in self.servers for name in server.runs]
        assert len(runs) == len(set(runs))

    @invariant()
    def nothing_is_pending_that_nobody_waits_for(self):
        under_way = sum(not task.done() for task in self.tasks.values()) + len(self.streams)
        assert self.calls.pending <= under_way
        assert sum(server.handler.active for server in self.servers) <= under_way

    def teardown(self):
        for subscription, *_ in self.streams.values():
            self.run(subscription.aclose())
        self.run(self.calls.aclose())
        self.settle()
        assert self.calls.pending == 0
        for server in self.servers:
            self.run(server.handler.aclose())
            assert server.handler.active == 0
            assert not server.running
        assert all(task.done() for task in self.tasks.values())
        assert all(len(ending) == 1 for ending in self.endings.values())
        self.settle()
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


CallMapModel.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestCallMapModel = CallMapModel.TestCase
