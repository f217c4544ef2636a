"""What each key of a rule does to calls and to streams."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import (
    CallError,
    ConfigError,
    Identity,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    load_plugins,
    operation,
)
from operad.auth import Credentials
from operad_rules import Rule, add_rules

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

ANN, BOB = (OperationContext(identity=Identity(name)) for name in ("ann", "bob"))
ADMIN = OperationContext(identity=Identity("root", scopes=["operad:admin"]))


class Shop:
    """Operations that count their calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.failures: list[CallError] = []
        self.running = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def look(self, input: Any, context: OperationContext) -> Any:
        self.calls.append(input)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        if self.failures:
            raise self.failures.pop()
        return {"article": input, "number": len(self.calls), "price": {"secret_key": 7, "net": [1, 2, 3]}}

    async def follow(self, input: Any, context: OperationContext) -> AsyncIterator[Any]:
        self.calls.append(input)
        for number in range(3):
            yield {"number": number, "secret_key": number}


def registry_of(shop: Shop, **rule: Any) -> OperationRegistry:
    """Return a registry whose rule matches ``shop.*``; ``other.look`` is free."""
    registry = OperationRegistry()
    add_rules(registry, Rule(match="shop.*", **rule))
    for namespace in ("shop", "other"):
        for name, type in {"look": "query", "buy": "mutation"}.items():
            errors = [{"code": "UNAVAILABLE"}]
            spec = OperationSpec(namespace=namespace, name=name, type=type, error_schemas=errors)
            registry.register(spec, shop.look)
    registry.register(OperationSpec(namespace="shop", name="follow", type="subscription"), shop.follow)
    return registry


def ruled(handler: Any, *rules: Rule, **spec: Any) -> OperationRegistry:
    """Return a registry with rules and the one operation ``shop.look``."""
    registry = OperationRegistry()
    add_rules(registry, *rules)
    registry.register(OperationSpec(**{"namespace": "shop", "name": "look", **spec}), handler)
    return registry


async def code(registry: OperationRegistry, id: str, context: OperationContext | None = None) -> str:
    """Return the code with which a call fails; of a stream, its first item."""
    with pytest.raises(CallError) as caught:
        await (
            anext(registry.subscribe(id, {}, context))
            if id == "shop.follow"
            else registry.execute(id, {}, context)
        )
    return caught.value.code


BOTH = pytest.mark.parametrize("id", ["shop.look", "shop.follow"])


@BOTH
async def test_deny_rejects_calls_and_streams_and_names_its_reason(id: str) -> None:
    shop = Shop()
    registry = registry_of(shop, deny="closed on Mondays")
    assert await code(registry, id) == "ACCESS_DENIED"
    assert shop.calls == []
    await registry.execute("other.look")
    with pytest.raises(CallError, match="closed on Mondays"):
        await registry.execute("shop.look")


async def test_an_operation_that_a_hidden_one_replaces_is_gone() -> None:
    registry = ruled(Shop().look)
    add_rules(registry, Rule(match="shop.*", hide=True))
    registry.register(OperationSpec(namespace="shop", name="look"), Shop().look, replace=True)
    assert await code(registry, "shop.look") == "OPERATION_NOT_FOUND"


async def test_hidden_operations_are_unknown() -> None:
    registry = registry_of(Shop(), hide=True)
    assert [spec.namespace for spec in registry.specs()] == ["operad", "other", "other"]
    assert await code(registry, "shop.look") == "OPERATION_NOT_FOUND"


@BOTH
async def test_a_rate_is_counted_for_each_caller(id: str) -> None:
    registry = registry_of(Shop(), rate="2/hour")
    for _ in range(2):
        await registry.execute(id, {}, ANN)
    assert await code(registry, id, ANN) == "OVERLOADED"
    await registry.execute(id, {}, BOB)


async def test_a_rate_per_operation_counts_operations_separately() -> None:
    registry = registry_of(Shop(), rate="1/hour", per="operation")
    await registry.execute("shop.look", {}, ANN)
    await registry.execute("shop.buy", {}, ANN)
    assert await code(registry, "shop.look", ANN) == "OVERLOADED"


async def test_a_caller_whose_id_looks_like_that_of_another_with_an_operation_is_counted_separately() -> None:
    registry = ruled(Shop().look, Rule(match="*", rate="1/hour", per="operation"))
    registry.register(OperationSpec(namespace="shop", name="y/shop.look"), Shop().look)
    for caller, id in (("ann", "shop.y/shop.look"), ("ann/shop.y", "shop.look")):
        await registry.execute(id, {}, OperationContext(identity=Identity(caller)))


async def test_a_rate_per_rule_counts_all_callers_together() -> None:
    registry = registry_of(Shop(), rate="1/hour", per="rule")
    await registry.execute("shop.look", {}, ANN)
    with pytest.raises(CallError) as caught:
        await registry.execute("shop.look", {}, BOB)
    assert caught.value.details["bound"] == "rate"
    assert 0 < caught.value.details["retryAfter"] <= 3_600


async def test_an_anonymous_caller_and_one_of_that_name_are_counted_separately() -> None:
    registry = registry_of(Shop(), rate="1/hour")
    await registry.execute("shop.look")
    await registry.execute("shop.look", {}, OperationContext(identity=Identity("anonymous")))


async def test_concurrency_lets_calls_wait_for_their_turn() -> None:
    shop = Shop()
    shop.gate.clear()
    registry = registry_of(shop, concurrency=2)
    calls = [asyncio.create_task(registry.execute("shop.look", {"n": n})) for n in range(5)]
    while len(shop.calls) < 2:
        await asyncio.sleep(0)
    assert await code(registry, "shop.look", OperationContext(deadline=1.0)) == "TIMEOUT"
    shop.gate.set()
    await asyncio.gather(*calls)
    assert (shop.most, len(shop.calls)) == (2, 5)


async def test_a_stream_holds_its_place_while_it_is_open() -> None:
    registry = registry_of(Shop(), concurrency=1)
    stream = registry.subscribe("shop.follow")
    await anext(stream)
    waiting = asyncio.create_task(registry.execute("shop.look"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await stream.aclose()
    await waiting


async def test_a_timeout_ends_a_call_and_keeps_an_earlier_deadline() -> None:
    shop = Shop()
    shop.gate.clear()
    assert await code(registry_of(shop, timeout="20ms"), "shop.look") == "TIMEOUT"
    assert await code(registry_of(shop, timeout="1h"), "shop.look", OperationContext(deadline=1.0)) == "TIMEOUT"


def _failure() -> CallError:
    return CallError("UNAVAILABLE", "closed", {"sent": False, "retryAfter": 0})


async def test_a_query_is_tried_again() -> None:
    shop = Shop()
    shop.failures = [_failure(), _failure()]
    await registry_of(shop, retry=2).execute("shop.look")
    assert len(shop.calls) == 3


async def test_a_query_is_tried_a_limited_number_of_times() -> None:
    shop = Shop()
    shop.failures = [_failure() for _ in range(5)]
    assert await code(registry_of(shop, retry=2), "shop.look") == "UNAVAILABLE"
    assert len(shop.calls) == 3


@pytest.mark.parametrize(
    ("id", "failure"),
    [("shop.buy", _failure()), ("shop.look", CallError("EXECUTION_ERROR")),
     ("shop.look", CallError("UNAVAILABLE", "", {"retryAfter": 900}))],
)  # fmt: skip
async def test_what_may_not_run_twice_or_soon_is_tried_once(id: str, failure: CallError) -> None:
    shop = Shop()
    shop.failures = [failure]
    assert await code(registry_of(shop, retry=3), id) == failure.code
    assert len(shop.calls) == 1


async def test_a_result_is_kept_for_its_caller_and_input_only() -> None:
    shop = Shop()
    registry = registry_of(shop, cache="1m")

    async def look(context: OperationContext | None, **input: Any) -> int:
        envelope = await registry.execute("shop.look", input, context)
        number: int = envelope.data["number"]
        return number

    assert await look(ANN, a=1) == await look(ANN, a=1) == 1
    assert await look(ANN, a=2) == 2
    assert await look(BOB, a=1) == 3
    assert await look(None, a=1) == 4
    assert await look(OperationContext(identity=Identity("ann", scopes=["more"])), a=1) == 5
    assert await look(OperationContext(identity=ANN.identity, metadata={"tenant": "x"}), a=1) == 6
    traced = OperationContext(identity=ANN.identity, metadata={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"})
    assert await look(traced, a=1) == 1


async def test_many_small_results_are_bounded_too() -> None:
    shop = Shop()
    registry = ruled(shop.look, Rule(match="*", cache="1m", cache_bytes=10_000), type="query")
    for number in (*range(40), 39, 0):
        await registry.execute("shop.look", {"n": number})
    assert len(shop.calls) == 41  # the last one was kept, the first one dropped


async def test_a_result_is_kept_for_the_token_of_its_caller_only() -> None:
    shop = Shop()
    registry = registry_of(shop, cache="1m")
    for token in ("wide", "narrow", "narrow"):
        shown = Credentials("bearer", token)
        await registry.execute("shop.look", {}, OperationContext(identity=Identity("ann"), credentials=shown))
    assert len(shop.calls) == 2


async def test_a_kept_result_cannot_be_changed_by_its_caller() -> None:
    registry = registry_of(Shop(), cache=60)
    (await registry.execute("shop.look")).data["price"]["net"].append(9)
    assert (await registry.execute("shop.look")).data["price"]["net"] == [1, 2, 3]


async def test_mutations_and_errors_are_not_kept() -> None:
    shop = Shop()
    registry = registry_of(shop, cache=60)
    for _ in range(2):
        await registry.execute("shop.buy")
    shop.failures = [_failure()]
    assert await code(registry, "shop.look") == "UNAVAILABLE"
    await registry.execute("shop.look")
    assert len(shop.calls) == 4


async def test_select_replaces_the_data_of_calls_and_items() -> None:
    assert (await registry_of(Shop(), select="price.net[1:]").execute("shop.look")).data == [2, 3]
    items = [item.data async for item in registry_of(Shop(), select="number").subscribe("shop.follow")]
    assert items == [0, 1, 2]


async def test_redact_hides_values_at_any_depth_in_results_items_and_errors() -> None:
    shop = Shop()
    registry = registry_of(shop, redact=["*SECRET*"])
    assert (await registry.execute("shop.look")).data["price"] == {"secret_key": "[redacted]", "net": [1, 2, 3]}
    items = [item.data async for item in registry.subscribe("shop.follow")]
    assert items[1] == {"number": 1, "secret_key": "[redacted]"}
    shop.failures = [CallError("EXECUTION_ERROR", "no", {"sent": {"my_secret": 9}})]
    with pytest.raises(CallError) as caught:
        await registry.execute("shop.look")
    assert caught.value.details == {"sent": {"my_secret": "[redacted]"}}
    assert caught.value.__context__ is None


async def test_redact_hides_the_fields_of_objects() -> None:
    @dataclasses.dataclass
    class Account:
        name: str
        password: str

    @attrs.define
    class Holder:
        account: Account

    async def look(input: Any, context: OperationContext) -> Any:
        return [Holder(Account("ann", "s3cret")), Account]

    found = (await ruled(look, Rule(match="*", redact=["pass*"])).execute("shop.look")).data
    assert found == [{"account": {"name": "ann", "password": "[redacted]"}}, Account]


async def test_a_part_of_a_large_result_is_not_replaced_by_a_handle() -> None:
    registry = ruled(lambda given, context: "x" * 10_000, Rule(match="*", max_bytes=100))
    kept = (await registry.execute("shop.look")).data
    part = (await registry.execute("operad.results.read", {"handle": kept["handle"]})).data
    assert (len(part["text"]), part["next"]) == (10_002, None)


async def test_a_large_result_is_read_by_its_handle_and_by_its_caller_only() -> None:
    registry = registry_of(Shop(), max_bytes=50)
    data = (await registry.execute("shop.look", {}, ANN)).data
    assert data["operation"] == "operad.results.read"
    text, offset = "", 0
    while offset is not None:
        asked = {"handle": data["handle"], "offset": offset, "length": 7}
        part = (await registry.execute(data["operation"], asked, ANN)).data
        text, offset = text + part["text"], part["next"]
    assert json.loads(text)["price"]["net"] == [1, 2, 3]
    assert len(text) == part["total"] == data["bytes"]
    with pytest.raises(CallError, match="NOT_FOUND"):
        await registry.execute(data["operation"], {"handle": data["handle"]}, BOB)


async def test_many_large_results_of_one_caller_leave_those_of_others_readable() -> None:
    registry = ruled(lambda given, context: "x" * given["size"], Rule(match="*", max_bytes=50))

    async def kept(size: int, caller: OperationContext) -> str:
        return str((await registry.execute("shop.look", {"size": size}, caller)).data["handle"])

    first = await kept(100, ANN)
    many = [await kept(60 * 2**20, BOB) for _ in range(6)]
    assert len((await registry.execute("operad.results.read", {"handle": first}, ANN)).data["text"]) == 102
    for handle in many[2:]:
        await registry.execute("operad.results.read", {"handle": handle}, BOB)
    for handle in many[:2]:  # the oldest of the caller who has most
        with pytest.raises(CallError, match="NOT_FOUND"):
            await registry.execute("operad.results.read", {"handle": handle}, BOB)


async def test_a_large_item_of_a_stream_becomes_a_handle() -> None:
    items = [item.data async for item in registry_of(Shop(), max_bytes=5).subscribe("shop.follow")]
    assert [item["operation"] for item in items] == ["operad.results.read"] * 3


@pytest.mark.parametrize("rule", [{"timeout": "1ms"}, {"retry": 3}, {"cache": "1m"}])
async def test_rules_for_calls_alone_leave_streams_as_they_are(rule: dict[str, Any]) -> None:
    shop = Shop()
    registry = registry_of(shop, **rule)
    for _ in range(2):
        stream = registry.subscribe("shop.follow")
        await anext(stream)
        await asyncio.sleep(0.005)
        assert [item.data["number"] async for item in stream] == [1, 2]
    assert len(shop.calls) == 2


async def test_a_result_within_the_bound_is_returned_as_it_is() -> None:
    assert (await registry_of(Shop(), max_bytes=5_000).execute("shop.look")).data["number"] == 1


@pytest.mark.parametrize("rule", [{"select": "a"}, {"redact": ["a"]}, {"max_bytes": 9}])
async def test_an_operation_whose_results_change_shape_has_no_output_schema(rule: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    registry = ruled(lambda given, context: {"a": 1}, Rule(match="*", **rule), output_schema=schema)
    spec = registry.get_spec("shop.look")
    assert spec is not None
    assert spec.output_schema.is_unknown
    await registry.execute("shop.look")


def _argument_kinds() -> list[Any]:
    def plain(old: int, fixed: str) -> list[Any]:
        return [old, fixed]

    async def coroutine(old: int, fixed: str) -> list[Any]:
        return [old, fixed]

    async def stream(old: int, fixed: str) -> AsyncIterator[list[Any]]:
        yield [old, fixed]

    def generator(old: int, fixed: str) -> Any:
        yield [old, fixed]

    return [plain, coroutine, stream, generator]


@pytest.mark.parametrize("function", _argument_kinds(), ids=lambda function: function.__name__)
async def test_arguments_are_fixed_and_renamed(function: Any) -> None:
    registry = OperationRegistry()
    add_rules(registry, Rule(match="*", set={"fixed": "mine", "absent": 1}, rename={"new": "old"}))
    registry.register(operation(function, namespace="shop", name="look"))
    spec = registry.get_spec("shop.look")
    assert spec is not None
    schema: Any = spec.input_schema.bundled()
    assert (list(schema["properties"]), schema["required"]) == (["new"], ["new"])
    assert (await registry.execute("shop.look", {"new": 1})).data == [1, "mine"]
    for input in ({"old": 1}, {"new": 1, "fixed": "yours"}):
        with pytest.raises(CallError, match="VALIDATION_ERROR"):
            await registry.execute("shop.look", input)


async def test_a_fixed_argument_is_rejected_by_an_operation_that_adapts_its_input() -> None:
    registry = OperationRegistry()
    add_rules(registry, Rule(match="*", set={"fixed": "mine"}))
    schema = {"type": "object", "properties": {"fixed": {}, "day": {}}, "additionalProperties": False}

    async def look(input: Any, context: OperationContext) -> Any:
        return input

    spec = OperationSpec(namespace="shop", name="look", input_schema=schema)
    registry.register(Operation(spec, look, adapt=lambda given: {**given, "day": str(given["day"])}))
    assert (await registry.execute("shop.look", {"day": 7})).data == {"day": "7", "fixed": "mine"}
    with pytest.raises(CallError, match="'fixed'"):
        await registry.execute("shop.look", {"day": 7, "fixed": "yours"})


async def test_an_open_object_cannot_override_a_fixed_argument() -> None:
    shop, rule = Shop(), Rule(match="*", set={"fixed": "mine"}, rename={"new": "old"})
    registry = ruled(shop.look, rule, input_schema={"type": "object", "properties": {"fixed": {}, "old": {}}})
    await registry.execute("shop.look", {"fixed": "yours", "old": 1, "more": 2})
    assert shop.calls == [{"fixed": "mine", "more": 2}]


FIXED = TABLES["fixed arguments"]


@pytest.mark.parametrize(("schema", "seen"), FIXED.values(), ids=FIXED)
async def test_a_caller_gives_no_fixed_argument_wherever_the_schema_declares_it(schema: Any, seen: Any) -> None:
    shop = Shop()
    registry = ruled(shop.look, Rule(match="*", set={"fixed": "mine"}), input_schema=schema)
    await registry.execute("shop.look", {"fixed": "yours"})
    assert shop.calls == [seen]


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_an_argument_that_one_rule_fixes_is_not_given_by_the_new_name_of_another(is_reversed: bool) -> None:
    shop = Shop()
    rules = [Rule(match="*", rename={"new": "fixed"}), Rule(match="*", set={"fixed": "mine"})]
    schema = {"type": "object", "properties": {"fixed": {"type": "string"}}}
    registry = ruled(shop.look, *(rules[::-1] if is_reversed else rules), input_schema=schema)
    await registry.execute("shop.look", {"new": "yours"})
    assert shop.calls[0]["fixed"] == "mine"


async def test_an_operation_with_an_argument_of_the_new_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    for rename, is_there in (({"b": "a"}, False), ({"b": "a", "a": "b"}, True)):
        registry = ruled(shop.look, Rule(match="*", rename=rename), input_schema=schema)
        assert ("shop.look" in registry) is is_there
    assert 'cannot rename an argument of shop.look to "b", which is another argument' in caplog.text
    await registry.execute("shop.look", {"a": "text", "b": 7})
    assert shop.calls == [{"a": 7, "b": "text"}]
    with pytest.raises(ValueError, match="rename: expected one new name for each argument"):
        Rule(match="*", rename={"x": "a", "y": "a"})


async def test_a_handler_that_comes_later_gets_the_changed_arguments() -> None:
    registry = OperationRegistry()
    add_rules(registry, Rule(match="*", set={"fixed": "mine"}))
    schema = {"type": "object", "properties": {"fixed": {"type": "string"}}, "required": ["fixed"]}
    registry.register_spec(OperationSpec(namespace="shop", name="look", input_schema=schema))
    for reply in ("first", "second"):
        registry.register_handler("shop.look", lambda given, context, reply=reply: [reply, given], replace=True)
        assert (await registry.execute("shop.look")).data == [reply, {"fixed": "mine"}]


class Host:
    """A client that can ask its user."""

    def __init__(self, action: str) -> None:
        self.action, self.asked = action, list[str]()

    async def elicit(self, message: str, schema: Any, url: Any, key: Any) -> dict[str, Any]:
        self.asked.append(message)
        return {"action": self.action}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, level: str, data: Any, logger: str | None) -> None: ...


@pytest.mark.parametrize("id", ["shop.buy", "shop.follow"])
async def test_the_user_of_the_client_approves(id: str) -> None:
    shop = Shop()
    registry = registry_of(shop, approve="client")
    host = Host("accept")
    await registry.execute(id, {"a": "\x1b[2J"}, OperationContext(client=host, identity=Identity("ann")))
    assert host.asked == [f'Allow "ann" to call "{id}" with {{"a": "\\u001b[2J"}}?']
    assert await code(registry, id, OperationContext(client=Host("decline"))) == "ACCESS_DENIED"
    assert await code(registry, id) == "ACCESS_DENIED"
    assert len(shop.calls) == 1


async def test_a_queue_waits_for_an_administrator() -> None:
    registry = registry_of(Shop(), approve="queue")
    for allow in (True, False):
        call = asyncio.create_task(registry.execute("shop.buy", {"n": 1}, ANN))
        waiting: list[Any] = []
        while not waiting:
            await asyncio.sleep(0)
            waiting = (await registry.execute("operad.approvals.list", {}, ADMIN)).data
        assert {key: waiting[0][key] for key in ("operation", "caller", "input")} == {
            "operation": "shop.buy", "caller": "ann", "input": '{"n": 1}',
        }  # fmt: skip
        decision = {"id": waiting[0]["id"], "allow": allow}
        assert await code(registry, "operad.approvals.list", ANN) == "ACCESS_DENIED"
        await registry.execute("operad.approvals.decide", decision, ADMIN)
        if allow:
            await call
        else:
            with pytest.raises(CallError, match="not approved"):
                await call
        with pytest.raises(CallError, match="NOT_FOUND"):
            await registry.execute("operad.approvals.decide", decision, ADMIN)


async def test_a_caller_whose_calls_wait_for_approval_leaves_places_for_others() -> None:
    registry = registry_of(Shop(), approve="queue")
    calls = [asyncio.create_task(registry.execute("shop.buy", {}, ANN)) for _ in range(100)]
    while len((await registry.execute("operad.approvals.list", {}, ADMIN)).data) < 100:
        await asyncio.sleep(0)
    assert await code(registry, "shop.buy", ANN) == "OVERLOADED"
    calls.append(asyncio.create_task(registry.execute("shop.buy", {}, BOB)))
    while (waiting := (await registry.execute("operad.approvals.list", {}, ADMIN)).data)[-1]["caller"] != "bob":
        await asyncio.sleep(0)
    await registry.execute("operad.approvals.decide", {"id": waiting[-1]["id"], "allow": True}, ADMIN)
    await calls[-1]
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def allow_ann(call: Any) -> bool:
    """Allow what ann calls."""
    return call.context.identity is not None and call.context.identity.id == "ann"


async def test_a_function_approves() -> None:
    registry = registry_of(Shop(), approve=f"{__name__}:allow_ann")
    await registry.execute("shop.buy", {}, ANN)
    assert await code(registry, "shop.buy", BOB) == "ACCESS_DENIED"


async def test_without_a_terminal_nothing_is_allowed_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert await code(registry_of(Shop(), approve="terminal"), "shop.buy") == "ACCESS_DENIED"
    assert 'no terminal to ask for the approval of "shop.buy"' in caplog.text


async def test_each_call_leaves_one_line_of_audit(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    shop = Shop()
    registry = OperationRegistry()
    rules = add_rules(registry, Rule(match="shop.*", audit=str(path)), base_dir=tmp_path)
    guarded = {"required_scopes": ["buy"]}
    registry.register(OperationSpec(namespace="shop", name="buy", access_control=guarded), shop.look)
    registry.register(OperationSpec(namespace="shop", name="follow", type="subscription"), shop.follow)

    async def nested(input: Any, context: OperationContext) -> None:
        await context.env.shop.buy({"card": "4111-secret"})

    registry.register(OperationSpec(namespace="shop", name="nested"), nested)
    registry.register(OperationSpec(namespace="other", name="look"), shop.look)
    for id in ("shop.nested", "shop.buy", "shop.unknown"):
        with suppress(CallError):
            await registry.execute(id, {"card": "4111-secret"}, ANN)
    async for _ in registry.subscribe("shop.follow", {}, ANN):
        pass
    await registry.execute("other.look")
    await rules.aclose()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "4111" not in path.read_text()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["operation"], line["caller"], line["outcome"]) for line in lines] == [
        ("shop.buy", "ann", "ok"),
        ("shop.nested", "ann", "ok"),
        ("shop.buy", "ann", "ACCESS_DENIED"),
        ("shop.unknown", "ann", "OPERATION_NOT_FOUND"),
        ("shop.follow", "ann", "ok"),
    ]
    assert lines[0]["parent"] == lines[1]["requestId"]
    assert lines[0]["input"] == lines[1]["input"] == lines[2]["input"] != lines[4]["input"]
    assert lines[4]["items"] == 3


@pytest.mark.parametrize(
    "id", ['shop.x\n{"outcome":"ok"}', "shop.\u2028\x1b[2J", "shop.\ud800", "shop." + "x" * 100_000]
)
async def test_an_id_that_a_caller_made_up_is_part_of_one_line_of_plain_text(tmp_path: Path, id: str) -> None:
    registry = OperationRegistry()
    rules = add_rules(registry, Rule(match="shop.*", audit="audit.jsonl"), base_dir=tmp_path)
    assert await code(registry, id) == "OPERATION_NOT_FOUND"
    await rules.aclose()
    (line,) = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert line.decode("ascii").isprintable()
    assert json.loads(line)["operation"] == id[:512]


async def test_calls_are_rejected_while_the_audit_log_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    shop = Shop()
    registry = ruled(shop.look, name="buy")
    rules = add_rules(registry, Rule(match="*", audit="audit"), base_dir=tmp_path)
    await registry.execute("shop.buy")  # found broken when its line is written
    for _ in range(3):
        assert await code(registry, "shop.buy") == "UNAVAILABLE"
    (tmp_path / "audit").rmdir()
    await registry.execute("shop.buy")
    await rules.aclose()
    assert len(shop.calls) == 2
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["ok", *["UNAVAILABLE"] * 3, "ok"]


@pytest.mark.parametrize("remove", [lambda path: path.rename(path.with_suffix(".1")), Path.unlink])
async def test_an_audit_log_that_was_moved_or_deleted_is_created_again(tmp_path: Path, remove: Any) -> None:
    path = tmp_path / "audit.jsonl"
    registry = ruled(Shop().look, name="buy")
    rules = add_rules(registry, Rule(match="*", audit="audit.jsonl"), base_dir=tmp_path)
    await registry.execute("shop.buy")
    remove(path)
    while not path.exists():
        await registry.execute("shop.buy")
        await asyncio.sleep(0.01)
    await rules.aclose()
    assert [json.loads(line)["outcome"] for line in path.read_text().splitlines()] == ["ok"]


@pytest.mark.parametrize("is_writable", [True, False])
async def test_kept_audit_lines_are_written_at_the_end_or_reported_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_writable: bool
) -> None:
    path = tmp_path / "audit"
    path.mkdir()
    registry = ruled(Shop().look, name="buy")
    rules = add_rules(registry, Rule(match="*", audit="audit"), base_dir=tmp_path)
    await registry.execute("shop.buy")
    if is_writable:
        path.rmdir()
    await rules.aclose()
    assert path.is_file() is is_writable
    assert ("are lost" in caplog.text) is not is_writable


def configured(folder: Path, text: str) -> OperationRegistry:
    (folder / "operad.toml").write_text(text)
    return OperationRegistry.from_config(folder, load_plugins(only=["rules"]))


async def test_rules_of_a_configuration_apply_in_their_fixed_order(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text('[[rules]]\nmatch = "shop.*"\nrate = "1/hour"\n')
    registry = configured(tmp_path, 'include = ["more.toml"]\n[[rules]]\nmatch = ["shop.look"]\ncache = "1m"\n')
    shop = Shop()
    registry.register(OperationSpec(namespace="shop", name="look", type="query"), shop.look)
    for _ in range(3):
        await registry.execute("shop.look")  # a kept result does not count for the rate
    assert len(shop.calls) == 1
    admin = OperationContext(trusted=True)
    assert (await registry.execute("operad.rules.explain", {"operation": "shop.look"}, admin)).data == [
        {"rule": 2, "match": ["shop.look"], "keys": {"cache": "1m"}},
        {"rule": 1, "match": ["shop.*"], "keys": {"rate": "1/hour"}},
    ]


async def test_an_explanation_has_the_keys_of_all_rules_from_the_outside_in() -> None:
    registry = OperationRegistry()
    add_rules(
        registry,
        Rule(match="shop.*", rate="1/hour", per="rule", audit="audit.jsonl", set={"key": "s3cret"}),
        Rule(match="other.*", retry=1),
        Rule(match="*.look", retry=2, cache="1m", rate="2/hour"),
    )
    admin = OperationContext(trusted=True)
    found = (await registry.execute("operad.rules.explain", {"operation": "shop.look"}, admin)).data
    assert [(each["rule"], list(each["keys"].items())) for each in found] == [
        (1, [("set", ["key"]), ("audit", "audit.jsonl")]),
        (3, [("cache", "1m")]),
        (1, [("rate", "1/hour"), ("per", "rule")]),
        (3, [("rate", "2/hour"), ("retry", 2)]),
    ]


@pytest.mark.parametrize(("text", "message"), TABLES["unusable"])
def test_a_rule_that_cannot_be_used_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, text)


def test_the_command_shows_what_matches_an_operation_from_the_outside_in(tmp_path: Path) -> None:
    runner = pytest.importorskip("click.testing").CliRunner()
    from operad_rules.command import rules

    (tmp_path / "operad.toml").write_text(
        '[[rules]]\nmatch = "shop.*"\nretry = 1\nset = {key = "s3cret"}\naudit = "a"\n[[rules]]\nmatch = "other.*"\n'
    )
    shown = runner.invoke(rules, ["--explain", "shop.look", "-c", str(tmp_path / "operad.toml")])
    assert shown.output == '[[rules]] 1: match shop.*\n  set = ["key"]\n  audit = a\n  retry = 1\n'
    listed = runner.invoke(rules, ["-c", str(tmp_path / "operad.toml")])
    assert listed.output == shown.output + "[[rules]] 2: match other.*\n"
    assert "No rule matches" in runner.invoke(rules, ["--explain", "x.y", "-c", str(tmp_path)]).output


async def test_rules_are_added_to_those_of_a_configuration_and_to_each_other(tmp_path: Path) -> None:
    registry = configured(tmp_path, '[[rules]]\nmatch = "shop.*"\nmax_bytes = 10\napprove = "queue"\n')
    add_rules(registry, Rule(match="shop.*", rate="1/hour", max_bytes=20))
    add_rules(registry, Rule(match="other.*", deny=True, approve="queue"), Rule(match="shop.*", retry=1))
    found = await registry.execute(
        "operad.rules.explain", {"operation": "shop.look"}, OperationContext(trusted=True)
    )
    assert [(each["rule"], each["keys"]) for each in found.data] == [
        (1, {"approve": "queue", "max_bytes": 10}), (2, {"max_bytes": 20, "rate": "1/hour"}), (4, {"retry": 1}),
    ]  # fmt: skip
    assert {"operad.results.read", "operad.rules.explain"} <= set(registry)
