"""`from_remote` step by step: what is asked of peers, how often, and what becomes of what they say."""

import asyncio
import inspect
import logging
from types import SimpleNamespace

import pytest

from operad import (
    CallError,
    CallHandler,
    ConfigError,
    ErrorCode,
    Identity,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    local_envelope,
)
from operad.errors import SourceError
from operad.transports import LinkDownError, TransportError, TransportFactory
from operad_calls import CallSettings, InProcessTransport, from_remote, plugin
from operad_calls.config import RemoteConfig
from operad_calls.federation import remote
from operad_calls.federation.remote import RemoteSession, _options
from operad_testing import make_plugin, plugins_of
from plugins.calls.tests.parts import echo, error_of, registry_of, settle


def wire(name="op", **more):
    return OperationSpec(namespace="t", name=name, **{"type": "query", **more}).to_wire()


class Calls:
    """A call map that answers by hand; `see` and `on_link` are what a tap of its transport tells."""

    def __init__(self):
        self.answers, self.called, self.asked = {}, [], []
        self.instances = []
        self.link = SimpleNamespace(register=self.register)
        self.closed = 0

    async def register(self, topic):
        self.called.append(("register", topic))

    async def open(self):
        self.called.append(("open",))

    async def aclose(self):
        self.closed += 1

    async def ask_all(self, topic, operation_id, wait, late):
        self.asked.append((topic, operation_id, wait))
        self.late = late
        if isinstance(self.instances, BaseException):
            raise self.instances
        return self.instances

    async def call(self, operation_id, input=None, **options):
        self.called.append((operation_id, input, options))
        found = self.answers[operation_id]
        found = found(input) if callable(found) else found
        found = await found if inspect.isawaitable(found) else found
        if isinstance(found, BaseException):
            raise found
        return local_envelope(found, operation_id)

    def changed(self, *instances, **more):
        """Tell that peers have changed; None: one that does not say its name."""
        for instance in instances:
            payload = {} if instance is None else {"instance": instance}
            event = {"type": more.get("type", "operad.changed"), "payload": payload}
            self.see(SimpleNamespace(direction=more.get("direction", "in"), event=event))

    def listed(self):
        """Whose lists were asked for since the last time, and how often all were."""
        names = [row[0].rpartition(".")[2] for row in self.called if row[0].startswith("operad.list.")]
        found = sorted(names), len(self.asked)
        self.called, self.asked = [], []
        return found


@pytest.fixture
def session_of(monkeypatch):
    def made(namespace=None, *, listed=None, **answers):
        """A session and its calls; ``listed``: the page of an instance ``one``, which is there."""
        calls = Calls()
        calls.answers = {key.replace("__", "."): value for key, value in answers.items()}
        if listed is not None:
            calls.answers["operad.list.one"] = {"operations": listed}
            calls.instances = [{"instance": "one"}]

        def tap(transport, see, on_link):
            calls.see, calls.on_link = see, on_link

        monkeypatch.setattr(remote, "tap", tap)
        monkeypatch.setattr(remote, "PendingRequestMap", lambda *args, **options: calls)
        return RemoteSession(InProcessTransport(), namespace, None, 0.7, CallSettings()), calls

    return made


@pytest.fixture
def pauses(monkeypatch):
    """The pauses before peers are asked again, which take no time."""
    found, sleep = [], asyncio.sleep

    async def pause(seconds):
        if seconds:
            found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(remote.asyncio, "sleep", pause)
    return found


@pytest.fixture
def listing(session_of):
    """A session that has listed what an instance ``one`` lists."""

    async def made(*specs, namespace=None, **answers):
        session, calls = session_of(namespace, listed=list(specs), **answers)
        await session.refresh()
        return session, calls

    return made


def ids(session):
    return [operation.id for operation in session.operations]


async def test_a_session_asks_everybody_who_is_there_and_lists_page_by_page(session_of):
    pages = {"": {"operations": [wire("a")], "nextCursor": "t.a"}, "t.a": {"operations": [wire("b")]}}
    session, calls = session_of(operad__list__one=lambda asked: pages[asked.get("cursor", "")])
    nobody = [{"instance": 5}, {"instance": {}}, {"instance": ["one"]}, {}, "x", None]
    calls.instances = [{"instance": "one"}, {"instance": "one"}, *nobody]
    await session.open()
    assert calls.called[:2] == [("open",), ("register", "all:operad.changed")]
    assert calls.asked == [("operad.discover", "operad.discover", 0.7)]
    assert [row[1] for row in calls.called[2:]] == [{}, {"cursor": "t.a"}]
    assert ids(session) == ["t.a", "t.b"]


async def test_no_more_than_1_000_pages_are_read(session_of):
    session, calls = session_of(operad__list__one={"operations": [wire()], "nextCursor": "t.op"})
    calls.instances = [{"instance": "one"}]
    await session.refresh()
    assert (ids(session), len(calls.called)) == (["t.op"], 1_000)


async def test_a_session_that_cannot_be_opened_is_closed(session_of):
    session, calls = session_of()

    async def broken(topic):
        raise LinkDownError("gone")

    calls.link.register = broken
    with pytest.raises(LinkDownError):
        await session.open()
    assert calls.closed == 1


async def test_peers_that_cannot_be_reached_are_an_error_of_the_source(monkeypatch):
    async def broken(self):
        raise TransportError("no hub")

    monkeypatch.setattr(RemoteSession, "open", broken)
    with pytest.raises(SourceError, match="the peers cannot be reached: no hub"):
        await remote.from_remote(InProcessTransport())


async def test_a_question_that_cannot_be_asked_is_an_error_of_the_transport(session_of):
    session, calls = session_of()
    calls.instances = CallError("UNAVAILABLE", "gone")
    with pytest.raises(TransportError, match="gone"):
        await session.refresh()


@pytest.mark.parametrize(
    ("answer", "left", "warned"),
    [
        (CallError(ErrorCode.TIMEOUT, "slow"), ["t.old"], True),
        (CallError(ErrorCode.NO_RESPONDERS, "none"), [], False),
        (CallError(ErrorCode.OPERATION_NOT_FOUND, "none"), [], False),
        (TransportError("down"), ["t.old"], True),
        ({}, ["t.old"], True),
        ("x", ["t.old"], True),
        ({"operations": 3}, ["t.old"], True),
        ({"operations": [3, {"id": "t"}, {"name": 1}]}, [], False),
        ({"operations": []}, [], False),
    ],
)
async def test_a_peer_that_does_not_say_keeps_what_it_said_and_one_that_is_gone_does_not(
    listing, answer, left, warned, caplog
):
    session, calls = await listing(wire("old"))
    calls.answers["operad.list.one"] = answer
    await session.refresh()
    assert ids(session) == left
    assert ("cannot list the operations of peer one: " in caplog.text) is warned
    calls.changed("one")
    await settle()
    assert (ids(session), "one" in calls.listed()[0]) == (left, True)


async def test_what_a_peer_does_not_serve_is_not_believed_where_the_transport_knows(session_of, caplog):
    session, calls = session_of(listed=[wire("a"), wire("b")])
    asked = []

    async def served_by(instance, topics):
        asked.append((instance, topics))
        return frozenset({"op:t.a"})

    calls.link.served_by = served_by
    await session.refresh()
    assert (ids(session), asked) == (["t.a"], [("one", ["op:t.a", "op:t.b"])])
    assert "ignored operations that peer one lists and does not serve: 1" in caplog.text
    caplog.clear()
    for names in ([], ["a"]):
        calls.answers["operad.list.one"] = {"operations": [wire(name) for name in names]}
        await session.refresh()
        assert ids(session) == [f"t.{name}" for name in names]
    assert (len(asked), caplog.text) == (2, "")


async def test_an_operation_that_is_listed_as_before_stays_the_same_object(listing):
    session, calls = await listing(wire("b"), wire("a"))
    before = list(session.operations)
    assert ids(session) == ["t.a", "t.b"]
    calls.answers["operad.list.one"] = {"operations": [wire("a"), wire("b", title="new"), wire("c")]}
    await session.refresh()
    after = list(session.operations)
    assert (after[0] is before[0], after[1] is before[1], ids(session)) == (True, False, ["t.a", "t.b", "t.c"])


async def test_a_namespace_is_put_in_front(listing):
    session, _ = await listing(wire("a"), namespace="peer")
    assert ids(session) == ["peer.t.a"]


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.fixture
def described(listing):
    async def made(answer, shared=None):
        return await listing(wire("a"), operad__describe__one=answer, operad__describe=shared)

    return made


def questions(calls):
    return [row[0] for row in calls.called if row[0].startswith("operad.describe")]


async def test_an_operation_is_described_once_for_all_who_wait(described):
    session, calls = await described(wire("a", input_schema=SCHEMA))
    await asyncio.gather(*(session.describe("t.a") for _ in range(3)))
    await session.describe("t.a")
    await session.describe("t.none")
    assert questions(calls) == ["operad.describe.one"]
    assert calls.called[-1][1:] == ({"operationId": "t.a"}, {"timeout": 1.0})
    assert session.operations[0].spec.input_schema.raw == SCHEMA


async def test_another_instance_is_asked_when_the_first_does_not_answer(described, caplog):
    caplog.set_level(logging.DEBUG, "operad.calls")
    session, calls = await described(CallError("TIMEOUT", "slow"), wire("a", input_schema=SCHEMA))
    await session.describe("t.a")
    assert questions(calls) == ["operad.describe.one", "operad.describe"]
    assert session.operations[0].spec.input_schema.raw == SCHEMA
    (record,) = [one for one in caplog.records if "did not describe" in one.getMessage()]
    assert record.levelno == logging.DEBUG


async def test_what_nobody_describes_is_asked_for_again_after_a_while(described, monkeypatch, caplog):
    now = SimpleNamespace(at=100.0)
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: now.at))
    session, calls = await described({"nonsense": 1}, CallError("X", ""))
    await session.describe("t.a")
    assert "no peer describes t.a: it is called without its schemas" in caplog.text
    assert [one.levelno for one in caplog.records if "did not describe" in one.getMessage()] == [logging.WARNING]
    now.at += 29.9
    await session.describe("t.a")
    assert len(questions(calls)) == 2
    now.at += 0.1
    calls.answers["operad.describe.one"] = wire("a", input_schema=SCHEMA)
    await session.describe("t.a")
    assert len(questions(calls)) == 3


async def test_what_was_described_of_another_peers_operation_is_dropped(described):
    session, calls = await described(None)
    calls.answers["operad.list.two"] = {"operations": [wire("a")]}

    async def moved(input):
        calls.instances = [{"instance": "two"}]
        await session.refresh()
        return wire("a", input_schema=SCHEMA)

    calls.answers["operad.describe.one"] = moved
    await session.describe("t.a")
    assert session.operations[0].spec.input_schema.is_unknown


async def test_a_flock_of_changes_is_asked_about_once(session_of, pauses):
    _, calls = session_of(operad__list__one={"operations": [wire("a")]}, operad__list__two={"operations": []})
    for changed, listed in ((["one", "two", "one"], (["one", "two"], 0)), (["one", None], ([], 1))):
        calls.changed(*changed)
        await settle()
        assert calls.listed() == listed
    assert pauses == [0.2] * 2


async def test_a_change_that_comes_while_peers_are_asked_is_asked_about_next(session_of, pauses):
    def lists(input):
        calls.changed("two")
        return {"operations": []}

    _, calls = session_of(operad__list__one=lists, operad__list__two={"operations": []})
    calls.changed("one")
    await settle()
    await settle()
    assert (calls.listed(), pauses) == ((["one", "two"], 0), [0.2] * 2)


@pytest.mark.parametrize(("peers", "each", "asked"), [(1_000, 1_000, 0), (1_001, 0, 1)])
async def test_changes_of_more_than_1_000_peers_are_a_change_of_all(session_of, pauses, peers, each, asked):
    _, calls = session_of()
    calls.changed(*map(str, range(peers)))
    await settle()
    names, questions = calls.listed()
    assert (len(names), questions) == (each, asked)


async def test_plugins_observe_a_call_of_a_remote_operation_once():
    """The registry of the caller reports it; the source does not report it again."""
    rows, bus = [], InProcessTransport()
    plugins = plugins_of(make_plugin("watching", operad_call_started=lambda call: rows.append(call.operation_id)))
    async with CallHandler(registry_of(echo=("query", echo)), bus):
        session = await from_remote(bus, plugins=plugins)
        (operation,) = session.operations
        assert (await operation.handler({"a": 1}, OperationContext())).data == {"a": 1}
        await session.aclose()
    assert rows == []


@pytest.mark.parametrize(
    ("tell", "listed"),
    [
        (lambda calls: calls.changed("one"), (["one"], 0)),
        (lambda calls: calls.changed(5), ([], 1)),
        (lambda calls: calls.changed(None), ([], 1)),
        (lambda calls: calls.changed("one", direction="out"), ([], 0)),
        (lambda calls: calls.changed("one", type="call.responded"), ([], 0)),
        (lambda calls: calls.on_link("up", 1), ([], 0)),
        (lambda calls: calls.on_link("up", 2), ([], 1)),
        (lambda calls: calls.on_link("down", 2), ([], 0)),
    ],
)
async def test_what_tells_of_a_change(session_of, pauses, tell, listed):
    _, calls = session_of(operad__list__one={"operations": []})
    tell(calls)
    await settle()
    assert calls.listed() == listed


async def test_peers_that_do_not_answer_are_asked_when_the_link_is_up(session_of, pauses, caplog):
    caplog.set_level(logging.DEBUG, "operad.calls")
    _, calls = session_of()
    calls.instances = CallError("UNAVAILABLE", "down")
    calls.changed(None)
    await settle()
    assert "the peers do not respond: UNAVAILABLE: down" in caplog.text


async def test_what_is_asked_ends_with_a_session_that_is_not_opened_after_all(session_of):
    session, calls = session_of()
    calls.instances = [{"instance": "one"}]

    def lists(input):
        calls.late({"instance": "two"})
        raise asyncio.CancelledError

    calls.answers["operad.list.one"] = lists
    with pytest.raises(asyncio.CancelledError):
        await session.open()
    assert (asyncio.all_tasks(), calls.closed) == ({asyncio.current_task()}, 1)


async def test_what_is_asked_ends_with_the_session(described):
    session, calls = await described(lambda asked: asyncio.sleep(60))
    calls.changed(None)
    describing = asyncio.ensure_future(session.describe("t.a"))
    await settle()
    await session.aclose()
    await describing
    calls.late({"instance": "one"})
    assert (asyncio.all_tasks(), calls.closed) == ({asyncio.current_task()}, 1)


def test_what_of_a_context_goes_along():
    ann = Identity(id="ann", scopes=frozenset())
    context = OperationContext(
        request_id="7", identity=ann, deadline=5.0, metadata={"traceparent": "00", "tracestate": "a=1", "other": 1}
    )
    known = {"deadline": 5.0, "identity": ann, "parent_request_id": "7"}
    assert _options(context) == {**known, "traceparent": "00", "tracestate": "a=1"}
    context.metadata = {"traceparent": 5, "tracestate": None}
    assert _options(context) == known


UNDESCRIBED = {"operad__describe__one": CallError("X", ""), "operad__describe": CallError("X", "")}


async def test_a_call_is_passed_on_and_what_it_says_is_its_own(listing):
    answers = {"t.q": 5, "t.m": CallError("BROKEN", "it is"), **UNDESCRIBED}
    session, calls = await listing(wire("q"), wire("m", type="mutation"), **answers)
    mutation, query = session.operations
    context = OperationContext(request_id="7", idempotency_key="k")
    assert (await query.handler({"a": 1}, context)).data == 5
    name, input, options = calls.called[-1]
    assert (name, input, options["retry"], options["idempotency_key"]) == ("t.q", {"a": 1}, True, "k")
    assert options["parent_request_id"] == "7"
    assert (await error_of(mutation.handler({}, context))).forwarded is True
    assert calls.called[-1][2]["retry"] is False


async def test_a_stream_is_passed_on_and_what_it_says_is_its_own(listing):
    session, calls = await listing(wire("s", type="subscription"), **UNDESCRIBED)
    (operation,) = session.operations
    asked = []

    class Items:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            asked.append("closed")

        async def __aiter__(self):
            yield local_envelope(1, "t.s")
            raise CallError(ErrorCode.NO_RESPONDERS, "gone")

    def subscribe(operation_id, input, **options):
        asked.append((operation_id, input, options["parent_request_id"]))
        return Items()

    calls.subscribe = subscribe
    stream = operation.handler({"a": 1}, OperationContext(request_id="7"))
    assert (await anext(stream)).data == 1
    assert (await error_of(anext(stream))).forwarded is True
    assert asked == [("t.s", {"a": 1}, "7"), "closed"]


async def test_an_operation_that_cannot_be_one_here_is_left_out_and_the_others_are_not(listing, caplog):
    session, _ = await listing(wire("a"), namespace="bad name")
    assert ids(session) == []
    assert "peer one lists an operation that cannot be used" in caplog.text


async def test_a_configured_source_is_what_the_peers_of_a_url_serve(tmp_path):
    bus, given = InProcessTransport(), []

    def create(url, **options):
        given.append((url, options))
        return bus

    plugins = plugins_of(plugin, make_plugin("p", operad_transports=[TransportFactory(("bus",), create)]))
    there = registry_of(op=("query", echo))
    async with CallHandler(there, bus), OperationRegistry(plugins) as registry:
        await registry.load("remote", url="bus://here", options={"word": 5})
        await registry.load("remote", namespace="far", url="bus://there", wait=0.1, timeout=5)
        assert [spec.id for spec in registry.specs()] == ["far.t.op", "t.op"]
        assert (await registry.execute("far.t.op", 3)).data == 3
        assert given == [("bus://here", {"word": 5}), ("bus://there", {})]
        assert "secret" not in repr(RemoteConfig(url="ws://me:secret@here", options={"token": "secret"}))
        with pytest.raises(ConfigError, match=r"url: expected a URL such as ws://127\.0\.0\.1:8765"):
            await registry.load("remote", url="here")


async def test_a_transport_with_a_call_map_of_its_own_is_refused_as_a_source():
    plugins = plugins_of(
        plugin, make_plugin("p", operad_transports=[TransportFactory(("pigeon",), lambda url: url)])
    )
    async with OperationRegistry(plugins) as registry:
        with pytest.raises(SourceError, match="got pigeon://, which lists no operations"):
            await registry.load("remote", url="pigeon://loft")


async def test_a_peer_that_lists_much_nonsense_does_not_fill_the_log(session_of, caplog):
    session, calls = session_of(operad__list__one={"operations": [None, *(wire(f"n{n}") for n in range(500))]})
    calls.answers["operad.list.two"] = {"operations": [{"id": "x"}] * 5_000}
    calls.answers["operad.list.six"] = {"operations": [wire(f"n{n}", type="mutation") for n in range(500)]}
    calls.instances = [{"instance": name} for name in ("one", "two", "six")]
    for _ in range(3):
        await session.refresh()
    assert len(ids(session)) == 500
    assert 0 < len(caplog.records) < 80
    assert all(len(record.getMessage()) < 500 for record in caplog.records)
