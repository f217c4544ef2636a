"""Downloads end as calls do: what their source raises is a `CallError`, what leaves them closes them."""

import asyncio

import attrs
import pytest

from core.tests.kit import error_of, giving, op
from operad import AccessControl, CallError, ErrorCode, OperationContext, OperationRegistry, local_envelope


async def pieces_of(items):
    return [piece async for piece in items]


class Bytes:
    """A source's bytes that end as they are told to."""

    def __init__(self, *ends):
        self.ends, self.closed = ends, 0

    async def __call__(self, input, context):
        try:
            for end in self.ends:
                if isinstance(end, BaseException):
                    raise end
                if end is None:
                    await asyncio.sleep(60)
                yield local_envelope(end, "t.get")
        finally:
            self.closed += 1


def registry_of(chunks, **fields):
    registry = OperationRegistry()
    registry.register(attrs.evolve(op("get", giving("whole"), type="query", **fields), chunks=chunks))
    return registry


async def test_the_bytes_come_piece_by_piece_and_observers_count_them():
    source, rows = Bytes(b"a", b"b"), []
    registry = registry_of(source)
    for _ in range(2):
        assert await pieces_of(registry.download("t.get")) == [b"a", b"b"]
        registry.observe(finished=lambda call, outcome: rows.append((call.is_stream, outcome.items)))
    assert (rows, source.closed) == ([(True, 2)], 2)


async def test_a_download_is_admitted_as_any_call():
    reads = AccessControl(required_scopes=("read",))
    registry = registry_of(Bytes(b"ab"), access_control=reads, input_schema={"required": ["text"]})
    trusted = OperationContext(trusted=True)
    for input, context, code in (({"text": ""}, None, "ACCESS_DENIED"), ({}, trusted, "VALIDATION_ERROR")):
        assert (await error_of(anext(registry.download("t.get", input, context)))).code == code
    assert await pieces_of(registry.download("t.get", {"text": ""}, trusted)) == [b"ab"]


async def test_a_download_does_not_walk_around_interceptors():
    async def deny(call, proceed):
        raise CallError("ACCESS_DENIED", "no")

    async def deny_streams(call, proceed):
        raise CallError("ACCESS_DENIED", "no streams")
        yield

    for streams, says in ((None, "does not support streams"), (deny_streams, "no streams")):
        registry = registry_of(Bytes(b"a"))
        registry.use(deny, subscribe=streams)
        with pytest.raises(CallError, match=says):
            await anext(registry.download("t.get"))


async def test_an_error_of_its_own_comes_as_it_is():
    error = CallError("BROKEN", "it is")
    source = Bytes(b"a", error)
    pieces = registry_of(source).download("t.get")
    assert await anext(pieces) == b"a"
    assert await error_of(anext(pieces)) is error
    assert (error.__cause__, source.closed) == (None, 1)


async def test_any_other_error_becomes_a_call_error_with_its_cause():
    error = ValueError("odd")
    assert (await error_of(anext(registry_of(Bytes(error)).download("t.get")))).__cause__ is error


async def test_a_download_ends_at_its_deadline(standing_clock):
    source = Bytes(b"a", None)
    context = OperationContext(deadline=(standing_clock + 0.05) * 1000)
    pieces = registry_of(source).download("t.get", None, context)
    assert await anext(pieces) == b"a"
    assert (await error_of(anext(pieces))).code == ErrorCode.TIMEOUT
    assert source.closed == 1


async def test_who_leaves_a_download_closes_its_source():
    source = Bytes(b"a", b"b")
    pieces = registry_of(source).download("t.get")
    assert await anext(pieces) == b"a"
    await pieces.aclose()
    assert source.closed == 1


async def test_what_gives_no_bytes_says_so():
    message = '"t.get" cannot be downloaded: its source does not support downloads; use execute'
    error = await error_of(anext(registry_of(None).download("t.get")))
    assert (error.code, error.message) == (ErrorCode.EXECUTION_ERROR, message)
    assert error.details == {"message": message}
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await anext(registry_of(None).download("t.none"))
