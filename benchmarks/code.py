"""What a program of code mode costs: beside bare Monty, the check of types, and what 1,000 programs leave behind.

    python benchmarks/code.py [--document api.github.com.json]

GitHub's document is in the npm package ``@octokit/openapi``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pydantic_monty
import pytest

from operad import CallError, OperationRegistry, load_plugins, operation

DOCUMENT = (
    Path(__file__).parents[1] / "tests/peers/prism/node_modules/@octokit/openapi/generated/api.github.com.json"
)
ONE_CALL = "await work.add(a=1, b=2)"
GITHUB = """\
issues = await github.issues_list_for_repo(owner="o", repo="r", state="open", per_page=10)
for issue in issues:
    comments = await github.issues_list_comments(owner="o", repo="r", issue_number=issue["number"])
    if comments:
        await github.issues_add_labels(owner="o", repo="r", issue_number=issue["number"], body={"labels": ["x"]})
len(issues)
"""


@operation(namespace="work", type="query")
async def add(a: int, b: int) -> int:
    return a + b


def bare(pool: Any) -> None:
    """The same program with nothing around it."""
    module = pydantic_monty.ExternalModule({"work": pydantic_monty.ExternalModule({"add": add})})
    with pool.checkout(external_modules={"m": module}) as session:
        step = session.feed_start(f"from m import work\n{ONE_CALL}")
        while not isinstance(step, pydantic_monty.MontyComplete):
            if isinstance(step, pydantic_monty.FutureSnapshot):
                step = step.resume({number: {"return_value": 3} for number in step.pending_call_ids})
            elif step.is_os_function:
                step = step.resume_auto()
            else:
                step = step.resume({"future": ...})
        assert step.output == 3


async def timed(call: Callable[[], Awaitable[Any]], times: int) -> float:
    """The median in milliseconds, after a few to warm up."""
    for _ in range(3):
        await call()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


async def overhead(times: int) -> None:
    with pydantic_monty.Monty(min_processes=0, max_checkouts_per_worker=1) as pool:

        async def floor() -> None:
            await asyncio.to_thread(bare, pool)

        async with OperationRegistry(load_plugins()) as registry:
            registry.register(add)
            await registry.load("code", namespace="checked")
            await registry.load("code", namespace="unchecked", check=False)
            count = 0

            async def fresh() -> None:
                nonlocal count
                count += 1
                await registry.execute("checked.run", {"code": f"{ONE_CALL}\n{count}"})

            monty = await timed(floor, times)
            plain = await timed(lambda: registry.execute("unchecked.run", {"code": ONE_CALL}), times)
            known = await timed(lambda: registry.execute("checked.run", {"code": ONE_CALL}), times)
            checked = await timed(fresh, times)
    print("A program with one call")
    for name, value in [
        ("Monty alone, a process for each program", monty),
        ("code.run without check", plain),
        ("code.run, checked before", known),
        ("code.run, a new program with check", checked),
    ]:
        print(f"  {name:<42}{value:7.2f} ms{value / monty:7.2f}")


async def checks(times: int, document: Path) -> None:
    print("Check of types, new programs")
    async with OperationRegistry(load_plugins()) as registry:
        for number in range(20):
            registry.register(operation(namespace="work", name=f"add{number}", type="query")(add.function))
        await registry.load("code")
        code = "\n".join(f"await work.add{number}(a=1, b=2)" for number in range(20))
        print(f"  {'20 operations':<42}{await timed(checker(registry, code), times):7.2f} ms")
    if not document.is_file():
        print(f"  GitHub's document is not at {document}: left out")
        return
    async with OperationRegistry(load_plugins()) as registry:
        await registry.load("openapi", namespace="github", spec=str(document))
        await registry.load("code")
        title = f"3 operations of {len(registry) - 3:,} of GitHub"
        print(f"  {title:<42}{await timed(checker(registry, GITHUB), times):7.2f} ms")


def checker(registry: OperationRegistry, code: str) -> Callable[[], Awaitable[None]]:
    count = 0

    async def check() -> None:
        nonlocal count
        count += 1
        # A mistake at the end: the program is checked and does not run.
        with pytest.raises(CallError) as caught:
            await registry.execute("code.run", {"code": f"{code}\nmistake: str = {count}"})
        assert len(caught.value.details["mistakes"]) == 1, caught.value

    return check


def left() -> dict[str, int]:
    gc.collect()
    process = psutil.Process()
    threads = [each for each in threading.enumerate() if each.name.startswith("operad-code")]
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads of ours": len(threads),
        "processes": len(process.children()),
        "files": process.num_fds(),
        "MiB": process.memory_info().rss // 2**20,
    }


async def thousand() -> None:
    async with OperationRegistry(load_plugins()) as registry:
        registry.register(add)
        await registry.load("code")

        async def one(number: int) -> None:
            await registry.execute("code.run", {"code": f"{ONE_CALL} + {number}"})

        await asyncio.gather(*[one(-number) for number in range(50)])
        before = left()
        began = time.perf_counter()
        for batch in range(50):
            await asyncio.gather(*[one(20 * batch + number) for number in range(20)])
        taken = time.perf_counter() - began
        print(f"1,000 programs, 20 at the same time: {taken:.1f} s")
        print(f"  after 50 programs     {before}")
        print(f"  after 1,000 more      {left()}")
    await asyncio.sleep(0.2)
    print(f"  after closing         {left()}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    parser.add_argument("--times", type=int, default=100)
    options = parser.parse_args()
    await overhead(options.times)
    await checks(options.times // 3, options.document)
    await thousand()


if __name__ == "__main__":
    asyncio.run(main())
