"""The sandbox Monty: a Python interpreter without files, network and imports, in a process for each program.

This uses the blocking API of pydantic-monty in threads. Its asynchronous API starts a runtime in this process, and
the runtime aborted the process when Python ended (Monty 1.4.0, 10 of 25 runs). With both APIs, the interpreter
runs in child processes. A child is killed when its program is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pydantic_monty

from operad_code.config import CodeConfig
from operad_code.sandbox import CallFailed, Host, Mistake, Program, ProgramFailed

logger = logging.getLogger("operad.code")

_CHECKERS = 2
"""The number of processes that check types. They are reused, as starting one takes longer than a check."""
_CHECKS = 200
"""The number of checks after which such a process is replaced."""
_CHECK_MEMORY = 512 * 1024 * 1024
_RETURN = "`return` statement outside of a function"
"""A mistake that only the type checker reports. It is ignored, because a program may return its result."""
_PREFIX, _CHECKED = "operad_", "operad_"
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class MontySandbox:
    """A `Sandbox` that uses pydantic-monty.

    Args:
        config: the limits of programs, and how many run at the same time.
    """

    def __init__(self, config: CodeConfig) -> None:
        self._config = config
        self._threads = ThreadPoolExecutor(config.max_programs + _CHECKERS, "operad-code")
        # A process for each program: what one leaves in its memory is not there for the next one.
        self._runners = _Pool(self._threads, max_processes=config.max_programs, max_checkouts_per_worker=1)
        self._checkers = _Pool(
            self._threads,
            max_processes=_CHECKERS,
            max_checkouts_per_worker=_CHECKS,
            request_timeout=config.check_timeout,
        )

    async def check(self, program: Program) -> list[Mistake]:
        """Return the mistakes of a program in syntax and types, without running it; an empty list if it has none.

        If the check takes too long, return one mistake that states this. Raises `ProgramFailed` if no process can
        be started.
        """
        modules = {
            _PREFIX + each.name: pydantic_monty.ExternalModule({each.name: None}, stubs=each.stub)
            for each in program.namespaces
        }
        modules[_CHECKED] = pydantic_monty.ExternalModule({}, stubs="")
        options: Any = {"limits": {"max_memory": _CHECK_MEMORY}, "external_modules": modules}
        async with self._checkers.session(type_check=True, type_check_format="json", **options) as turn:
            try:
                # Types are checked before anything runs. The first thing that would run is an import, which fails.
                snapshot = await turn(
                    turn.session.feed_start, f"import {_CHECKED}; {_imports(program)}{program.code}"
                )
                while snapshot.function_name != "import":
                    snapshot = await turn(snapshot.resume_auto)
                await turn(snapshot.resume, {"exception": ImportError()})
            except pydantic_monty.MontyTypingError as error:
                return list(_mistakes(json.loads(error.display())))
            except pydantic_monty.MontySyntaxError as error:
                return [_mistake(error)]
            except pydantic_monty.MontyRuntimeError as error:
                is_unsupported = isinstance(error.exception(), NotImplementedError)
                return [_mistake(error)] if is_unsupported else []
            except pydantic_monty.MontyError:
                limit = f"check_timeout = {self._config.check_timeout:g} seconds"
                return [
                    Mistake(1, 1, f"the types of the program could not be checked within {limit}; simplify it")
                ]
        return []

    async def run(self, program: Program, host: Host) -> Any:
        """Run a program and return its result. Raises `ProgramFailed` if the program fails or exceeds a limit."""
        config = self._config
        limits = {
            "max_memory": config.memory,
            "max_feed_duration_secs": config.compute,
            "max_recursion_depth": config.recursion,
            # A call takes two; the rest is for sleeping, names and imports.
            "max_suspensions": 2 * config.max_calls + 1_000,
        }
        modules = {
            _PREFIX + each.name: pydantic_monty.ExternalModule({each.name: _tree(each.functions)})
            for each in program.namespaces
        }
        code = _imports(program) + program.code + (f"\n{program.last}" if program.last else "")
        output = _Output(config.max_output, host)
        async with self._runners.session(
            limits=limits,
            external_modules=modules,
            os_policy={"sleep": "system", "sleep_system_max": config.timeout},
        ) as turn:
            feed = turn.session.feed_start
            try:
                snapshot = await turn(lambda: feed(code, inputs=dict(program.inputs), print_callback=output.sink))
                return await _Run(turn, host, output).finish(snapshot)
            except pydantic_monty.MontyError as error:
                await output.flush()
                raise self._failed(error) from None
            except RuntimeError as error:  # the process was lost between two turns
                raise ProgramFailed(f"the interpreter ended: {error}") from None

    def _failed(self, error: pydantic_monty.MontyError) -> ProgramFailed:
        if isinstance(error, pydantic_monty.MontyCrashedError):
            return ProgramFailed("the process of the interpreter ended before the program")
        text, line = str(error), None
        kind = type(error.exception()).__name__
        if isinstance(error, (pydantic_monty.MontyRuntimeError, pydantic_monty.MontySyntaxError)):
            frames = error.traceback()
            line = frames[-1].line - 1 if frames else None
        if text.startswith("TimeoutError: feed time limit exceeded"):
            text = f"TimeoutError: the program computed for more than compute = {self._config.compute:g} seconds"
        elif "suspension limit" in text:
            text = f"RuntimeError: the program made more than max_calls = {self._config.max_calls} calls"
        elif "memory limit" in text and text.endswith(f"> {self._config.max_output} bytes"):
            text = f"MemoryError: the program printed more than max_output = {self._config.max_output} bytes"
        elif "memory limit" in text:
            text = f"MemoryError: the program needs more than memory = {self._config.memory} bytes"
        return ProgramFailed(text if line is None else f"line {line}: {text}", kind, line)

    async def aclose(self) -> None:
        """End all programs; idempotent."""
        for pool in (self._runners, self._checkers):
            await pool.aclose()
        self._threads.shutdown(wait=False)


class _Output:
    """The output of a program, passed on after each turn."""

    def __init__(self, max_bytes: int, host: Host) -> None:
        self.sink = pydantic_monty.CollectString(max_bytes)
        self._host, self._passed_on = host, 0

    async def flush(self) -> None:
        """Pass on the output since the last call."""
        fresh = self.sink.output[self._passed_on :]
        if fresh:
            self._passed_on += len(fresh)
            await self._host.print(fresh)


class _Run:
    """One running program, with its calls in one task group."""

    def __init__(self, turn: _Turns, host: Host, output: _Output) -> None:
        self._turn, self._host, self._output = turn, host, output
        self._calls: dict[int, asyncio.Task[dict[str, Any]]] = {}

    async def finish(self, snapshot: Any) -> Any:
        """Serve the program until it ends, cancel its remaining calls, and return its result."""
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            try:
                while not isinstance(snapshot, pydantic_monty.MontyComplete):
                    await self._output.flush()
                    snapshot = await self._next(snapshot, group)
                await self._output.flush()
            except Exception as error:  # noqa: BLE001  # raised below: a task group would wrap it
                failure = error
            for call in self._calls.values():
                call.cancel()
        if failure is not None:
            raise failure
        try:
            return snapshot.output
        except Exception as error:  # noqa: BLE001  # such as an integer of many digits
            raise ProgramFailed(f"the result is not JSON: {error}; return JSON values") from None

    async def _next(self, snapshot: Any, group: asyncio.TaskGroup) -> Any:
        turn = self._turn
        if isinstance(snapshot, pydantic_monty.NameLookupSnapshot):
            return await turn(snapshot.resume)  # without a value: a NameError
        if isinstance(snapshot, pydantic_monty.FutureSnapshot):
            waiting = {self._calls[number]: number for number in snapshot.pending_call_ids}
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del self._calls[waiting[task]]
            return await turn(snapshot.resume, {waiting[task]: task.result() for task in done})
        name = str(snapshot.function_name)
        try:
            args, fields = snapshot.args, snapshot.kwargs
        except Exception as error:  # noqa: BLE001  # a value that cannot leave the sandbox
            return await turn(snapshot.resume, {"exception": ValueError(str(error))})
        if not snapshot.is_os_function:
            call: Coroutine[Any, Any, Any] = self._host.call(_public(name), args, fields)
        elif name == "system.sleep":
            await asyncio.sleep(args[0])
            return await turn(snapshot.resume, {"return_value": None})
        elif name == "system.async_sleep":
            call = asyncio.sleep(args[0])
        else:  # imports of our modules; everything else is refused by the interpreter
            return await turn(snapshot.resume_auto)
        self._calls[snapshot.call_id] = group.create_task(_settled(call))
        return await turn(snapshot.resume, {"future": ...})


async def _settled(call: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    try:
        return {"return_value": await call}
    except CallFailed as error:
        return {"exception": RuntimeError(str(error))}
    except Exception:  # a task group would end the other calls, too
        logger.exception("a call of a program failed")
        return {"exception": RuntimeError("the call failed; the log of the server has the reason")}


def _imports(program: Program) -> str:
    """Return the line of imports that is put before a program; line numbers of mistakes include this line."""
    return "; ".join(f"from {_PREFIX}{each.name} import {each.name}" for each in program.namespaces) + "\n"


def _public(name: str) -> str:
    """Return ``github.issues_list`` for ``operad_github.github.issues_list``."""
    return name.partition(".")[2] if name.startswith(_PREFIX) else name


def _tree(functions: Iterable[str]) -> pydantic_monty.ExternalModule:
    """Return the object of a namespace. Its functions never run, because calling one suspends the program."""
    attributes: dict[str, Any] = {}
    for function in functions:
        name, dot, inner = function.partition(".")
        attributes[name] = pydantic_monty.ExternalModule({inner: _never}) if dot else _never
    return pydantic_monty.ExternalModule(attributes)


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("expected the host to make the calls of a program, got a call in the sandbox")


def _mistake(error: Any) -> Mistake:
    frames = error.traceback()
    line, column = (max(1, frames[-1].line - 1), frames[-1].column) if frames else (1, 1)
    return Mistake(line, column, str(error).removeprefix("NotImplementedError: "))


def _mistakes(found: Iterable[Mapping[str, Any]]) -> Iterable[Mistake]:
    for each in found:
        place = each["location"]
        if each["message"] != _RETURN and place["row"] > 1:
            yield Mistake(place["row"] - 1, place["column"], each["message"].replace("`", '"'))


# --- processes -----------------------------------------------------------------------------------------


class _Pool:
    """Processes of the interpreter, started when they are needed."""

    def __init__(self, threads: ThreadPoolExecutor, *, max_processes: int, **options: Any) -> None:
        self._threads = threads
        self._places = asyncio.Semaphore(max_processes)
        self._pool = pydantic_monty.Monty(min_processes=0, max_processes=max_processes, **options)
        self._is_open = False
        self._all: set[_Turns] = set()

    def session(self, **options: Any) -> _Turns:
        """Return a session of one process, as an asynchronous context manager."""
        if not self._is_open:
            self._pool.__enter__()
            self._is_open = True
        return _Turns(
            self._threads, self._places, self._pool.checkout(script_name="program.py", **options), self._all
        )

    async def aclose(self) -> None:
        """Kill the processes of all sessions and end the pool."""
        for turns in tuple(self._all):
            await turns.end()
        if self._is_open:
            self._is_open = False
            await asyncio.to_thread(self._pool.__exit__, None, None, None)


class _Turns:
    """A session of one process. Each turn runs in a thread; cancelling a turn kills the process."""

    def __init__(
        self, threads: ThreadPoolExecutor, places: asyncio.Semaphore, session: Any, all_: set[_Turns]
    ) -> None:
        self._threads, self._places, self.session, self._all = threads, places, session, all_
        self._process: int | None = None
        self._running: asyncio.Future[Any] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._places.acquire()
        self._all.add(self)
        try:
            await self(self.session.__enter__)
        except Exception as error:
            await asyncio.shield(self.end())
            raise ProgramFailed(f"the sandbox cannot be started: {error}") from error
        except BaseException:
            await asyncio.shield(self.end())
            raise
        self._process = self.session.worker_pid
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.end())

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function of the session in a thread."""
        self._running = asyncio.get_running_loop().run_in_executor(self._threads, _guarded, function, args)
        result = await asyncio.shield(self._running)
        self._running = None
        return result

    def end(self) -> asyncio.Task[None]:
        """End the session; idempotent. This continues if the task that waits for it is cancelled."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        return self._ending

    async def _end(self) -> None:
        running = self._running
        try:
            if running is not None:
                if self._process is not None and not running.done():
                    os.kill(self._process, _KILL)  # it is computing, and would until its own limit
                await asyncio.wait([running])
                if running.exception() is not None and self._process is None:
                    return  # it was never opened
            await asyncio.get_running_loop().run_in_executor(
                self._threads, _guarded, self.session.__exit__, (None, None, None)
            )
        except Exception:
            logger.exception("a session of the sandbox could not be closed")
        finally:
            self._all.discard(self)
            self._places.release()


def _guarded(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except Exception:
        raise
    except BaseException as error:  # a panic of the extension; asyncio would end the event loop with it
        raise ProgramFailed(f"the sandbox failed, a defect of pydantic-monty: {error}") from error
