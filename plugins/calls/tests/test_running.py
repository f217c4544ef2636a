"""Running requests: many that never wait in one task, and each that waits in one of its own."""

import asyncio
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from unittest.mock import ANY
from weakref import WeakKeyDictionary

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad_calls.serving.running import Running

word = ContextVar("word", default="")
basket = ContextVar("basket")


class Incomparable:
    def __eq__(self, other):
        raise ValueError("compared")

    __hash__ = object.__hash__


def request(name):
    return SimpleNamespace(operation_id=name, is_over=False, task=None)


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_requests_that_never_wait_share_a_task_and_run_in_their_order():
    running, seen = Running(), []

    async def work(number):
        seen.append((number, id(asyncio.current_task())))  # who keeps the task itself shares it no longer

    for number in range(5):
        running.add(request(f"a.f{number}"), work(number))
    await turns(1)
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    assert len({task for _, task in seen}) == 1


async def test_one_that_waits_keeps_its_task_and_the_others_go_on_at_once():
    running, seen, event = Running(), [], asyncio.Event()
    requests = [request(f"a.f{number}") for number in range(4)]

    async def work(number):
        task = asyncio.current_task()
        if number == 1:
            await event.wait()
        assert asyncio.current_task() is task is requests[number].task
        seen.append(number)

    for number, one in enumerate(requests):
        running.add(one, work(number))
    await turns(3)
    assert seen == [0, 2, 3]
    assert requests[1].task.get_name() == "a.f1"
    assert requests[1].task is not requests[2].task
    event.set()
    await requests[1].task
    assert seen == [0, 2, 3, 1]


async def test_what_comes_behind_many_that_wait_begins_as_soon_as_they_do():
    """In each turn of the loop others may work long: one that waits must not cost those behind it a turn."""
    running, begun, event = Running(), [], asyncio.Event()
    requests = [request(f"a.f{number}") for number in range(20)]

    async def wait(number):
        begun.append(number)
        await event.wait()

    for number, one in enumerate(requests):
        running.add(one, wait(number))
    await turns(2)
    assert begun == list(range(20))
    event.set()
    await asyncio.wait({one.task for one in requests})


async def test_what_is_kept_for_the_task_of_a_request_no_other_one_finds():
    """As libraries do that know the current task and no context variables."""
    running, left, found = Running(), WeakKeyDictionary(), []

    async def leave():
        left[asyncio.current_task()] = "a session"

    async def look():
        found.append(left.get(asyncio.current_task()))

    for work in (leave(), look()):
        running.add(request("a.f"), work)
    await turns()
    assert found == [None]


async def test_to_cancel_one_that_waits_cancels_no_other():
    running, seen = Running(), []
    requests = [request("a.wait"), request("a.f")]

    async def wait():
        await asyncio.sleep(60)

    async def work():
        await asyncio.sleep(0)
        seen.append(True)

    running.add(requests[0], wait())
    running.add(requests[1], work())
    await turns(3)
    requests[0].task.cancel()
    await turns()
    assert requests[0].task.cancelled()
    assert seen == [True]


@pytest.mark.parametrize("taken_back", [False, True])
async def test_a_handler_that_cancels_its_own_task_cancels_no_other(taken_back):
    """Also where it takes the cancellation back: before Python 3.13 it comes all the same, at the next wait."""
    running, seen = Running(), []

    async def cancel():
        asyncio.current_task().cancel()
        if taken_back:
            asyncio.current_task().uncancel()

    async def work():
        await asyncio.sleep(0)
        seen.append(True)

    running.add(request("a.cancel"), cancel())
    running.add(request("a.f"), work())
    await turns()
    assert seen == [True]


@pytest.mark.parametrize("left", ["left behind", Incomparable()])
async def test_what_a_handler_leaves_in_context_variables_no_other_one_meets(left):
    running, seen = Running(), []

    async def leave():
        word.set(left)

    async def look():
        seen.append(word.get())

    for work in (leave(), look(), leave(), look()):
        running.add(request("a.f"), work)
    await turns()
    assert [type(item) for item in seen] == [str, str]
    assert seen == ["", ""]
    assert word.get() == ""


@pytest.mark.parametrize("left", [[], ANY])
async def test_what_a_handler_leaves_no_other_one_meets_although_it_is_equal_to_what_was(left):
    running, seen, first = Running(), [], []
    basket.set(first)

    async def leave():
        basket.set(left)

    async def look():
        seen.append(basket.get())

    for work in (leave(), look()):
        running.add(request("a.f"), work)
    await turns()
    assert seen[0] is first


async def test_each_has_the_context_variables_of_whoever_brought_it():
    running, seen = Running(), []

    async def look():
        seen.append(word.get())

    async def bring(name):
        word.set(name)
        running.add(request("a.f"), look())

    await asyncio.gather(*(bring(name) for name in ("one", "two", "two", "three")))
    await turns()
    assert seen == ["one", "two", "two", "three"]


async def test_who_keeps_the_task_of_a_request_that_is_over_cancels_no_other():
    running, seen = Running(), []

    async def keep():
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)

    async def work():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append(asyncio.current_task().get_name())

    running.add(request("a.keep"), keep())
    running.add(request("a.f"), work())
    await turns()
    assert seen == ["a.f"]


async def test_after_one_that_left_something_the_others_have_tasks_of_their_own():
    running, seen, event = Running(), [], asyncio.Event()

    async def leave():
        word.set("left behind")

    async def work(wait):
        seen.append(asyncio.current_task())
        if wait:
            await event.wait()

    requests = [request(f"a.f{number}") for number in range(5)]
    for one, it in zip(requests, (leave(), work(False), work(False), work(True), work(True)), strict=True):
        running.add(one, it)
    await turns()
    assert [task.get_name() for task in seen] == ["a.f1", "a.f2", "a.f3", "a.f4"]
    assert len(set(seen)) == 4
    event.set()
    await asyncio.wait({one.task for one in requests[3:]})


async def test_who_waits_for_the_end_of_a_request_waits_for_no_other():
    running, ended, event = Running(), [], asyncio.Event()

    async def tell():
        asyncio.current_task().add_done_callback(lambda task: ended.append(True))

    requests = [request("a.tell"), request("a.wait")]
    running.add(requests[0], tell())
    running.add(requests[1], event.wait())
    await turns()
    assert ended == [True]
    event.set()
    await requests[1].task


async def test_each_sees_its_own_name_on_the_task_that_they_share():
    running, seen = Running(), []

    async def look():
        task = asyncio.current_task()
        seen.append((id(task), task.get_name()))

    for number in range(3):
        running.add(request(f"a.f{number}"), look())
    await turns(1)
    assert [name for _, name in seen] == ["a.f0", "a.f1", "a.f2"]
    assert len({task for task, _ in seen}) == 1


async def test_a_task_factory_that_knows_no_context_and_changes_it_holds_nothing_up():
    running, seen = Running(), []

    def factory(loop, coro, *, name=None):
        context = copy_context()
        context.run(word.set, "of the factory")
        return context.run(lambda: asyncio.Task(coro, loop=loop, name=name))

    async def work(number):
        seen.append(number)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        for number in range(3):
            running.add(request("a.f"), work(number))
    finally:
        loop.set_task_factory(None)
    await turns()
    assert seen == [0, 1, 2]


async def test_a_request_that_is_over_before_it_begins_does_not_run():
    running, seen = Running(), []

    async def work(number):
        seen.append(number)

    requests = [request("a.f") for _ in range(3)]
    for number, one in enumerate(requests):
        running.add(one, work(number))
    requests[1].is_over = True
    await turns()
    assert seen == [0, 2]


async def test_whatever_comes_out_of_one_the_others_run():
    running, seen = Running(), []

    async def fail():
        raise asyncio.CancelledError

    async def work():
        seen.append(True)

    for one in (fail(), work(), fail(), work()):
        running.add(request("a.f"), one)
    await turns()
    assert seen == [True, True]


async def test_all_that_have_come_have_a_task_before_a_handler_closes():
    running, begun = Running(), []
    stop = asyncio.Event()

    async def wait(number):
        begun.append(number)
        await stop.wait()

    requests = [request("a.f") for _ in range(5)]
    for number, one in enumerate(requests):
        running.add(one, wait(number))
    await running.assigned()
    stop.set()
    await asyncio.wait({one.task for one in requests})
    assert begun == [0, 1, 2, 3, 4]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=12))
def test_each_runs_once_whatever_the_others_do(parts):
    """Of each: how many turns it waits, whether it cancels its task at its end, and whether others come first."""

    async def main():
        running, seen = Running(), []

        async def work(number, waits, cancels):
            for _ in range(waits):
                await asyncio.sleep(0)
            seen.append(number)
            if cancels:
                asyncio.current_task().cancel()

        for number, (waits, cancels, later) in enumerate(parts):
            if later:
                await asyncio.sleep(0)
            running.add(request("a.f"), work(number, waits, cancels))
        await turns(30)
        assert sorted(seen) == list(range(len(parts)))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
