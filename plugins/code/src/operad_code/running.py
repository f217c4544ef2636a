"""Run programs: find the operations that they may call, check them, enforce the limits, and make their calls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import pkgutil
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any, cast

import attrs

from operad import CallError, ConfigError, ErrorCode, OperationContext, OperationEnv, OperationType
from operad.plugin import SourceContext, mask_error
from operad.wire import from_json, to_json
from operad.words import nearest, printable
from operad_cli.stubs.modules import program_module
from operad_code.config import CodeConfig
from operad_code.sandbox import CallFailed, Mistake, Program, ProgramFailed, Sandbox
from operad_code.surface import Member, Surface, namespaces

logger = logging.getLogger("operad.code")

_SURFACES, _CHECKED = 16, 512
"""The numbers of callers' surfaces, and of checked programs, that are cached."""
_DEEPEST = 100
"""The maximum depth of values that enter or leave a program."""
_SMALLEST = 16
"""The minimum number of bytes that a list or an object counts as: visiting it takes longer than writing it."""
_SIZED: frozenset[type[Any]] = frozenset({str, dict, list, tuple})
_MISTAKES = 10
_LINE, _MESSAGE = 2_000, 4_000
"""The maximum number of characters of a printed line, and of the message of an exception."""
_depth: ContextVar[int] = ContextVar("operad_code_depth", default=0)


class Runner:
    """The runner for the programs of one source.

    Args:
        config: the options of the source, with the limits.
        sandbox: the sandbox for programs; default: the one that ``config`` names, else Monty.
    """

    def __init__(self, config: CodeConfig, sandbox: Sandbox | None = None) -> None:
        self.config = config
        self._sandbox = sandbox
        self._places = asyncio.Semaphore(config.max_programs)
        self._surfaces: list[Surface] = []
        self._checked: OrderedDict[bytes, list[Mistake]] = OrderedDict()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, created when it is first used. Raises `ConfigError` if it cannot be loaded."""
        if self._sandbox is None:
            self._sandbox = _sandbox(self.config)
        return self._sandbox

    def surface(self, registry: Any, context: OperationContext, *, trusted: bool = False) -> Surface:
        """Return the operations that programs of the context's caller may use; ``trusted`` skips access checks."""
        specs = registry.specs()
        for known in self._surfaces:
            if known.specs is specs and known.identity == context.identity and known.trusted == trusted:
                return known
        surface = Surface(specs, context.identity, self.chooses, trusted=trusted)
        self._surfaces = [surface, *self._surfaces[: _SURFACES - 1]]
        return surface

    def chooses(self, operation_id: str) -> bool:
        """Return True if ``include`` and ``exclude`` allow programs to use an operation."""
        config = self.config
        return any(fnmatchcase(operation_id, pattern) for pattern in config.include) and not any(
            fnmatchcase(operation_id, pattern) for pattern in config.exclude
        )

    # --- before a program runs --------------------------------------------------------------------

    async def program(
        self, code: str, registry: Any, surface: Surface, last: str = "", inputs: Mapping[str, Any] | None = None
    ) -> tuple[Program, list[Member]]:
        """Return a program with its namespaces, and the operations that it may call. For arguments see `run`.

        Raises `CallError` ``EXECUTION_ERROR`` if the program exceeds ``max_code`` or ``max_operations``.
        """
        size = len(code.encode("utf-8", "surrogatepass"))
        within("max_code", self.config.max_code, size, "bytes of code")
        used = surface.used(code)
        count = sum(len(members) for members in used.values())
        within("max_operations", self.config.max_operations, count, "operations named in the program")
        for variable, members in used.items():
            used[variable] = [await completed(registry, member) for member in members]
        # Large schemas take long to read.
        spaces = await asyncio.to_thread(namespaces, used) if used else ()
        return Program(code, spaces, inputs or {}, last), [each for members in used.values() for each in members]

    async def mistakes(self, program: Program) -> list[Mistake]:
        """Return the mistakes of a program, or an empty list. They are cached by its text and stubs."""
        parts = [program.code, *(each.stub for each in program.namespaces)]
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
        found = self._checked.get(key)
        if found is None:
            found = self._checked[key] = await self.sandbox.check(program)
            if len(self._checked) > _CHECKED:
                self._checked.popitem(last=False)
        return found

    def explained(self, program: Program, mistakes: Sequence[Mistake], surface: Surface) -> CallError:
        """Return a ``VALIDATION_ERROR`` with at most 10 mistakes.

        If the line of a mistake names an operation, or a similar name, the mistake has the operation's signature.
        """
        lines = program.code.splitlines()
        details = []
        for mistake in mistakes[:_MISTAKES]:
            one: dict[str, Any] = attrs.asdict(mistake)
            if (member := _meant(lines, mistake, surface)) is not None:
                one["signature"] = member.signature
            details.append(one)
        text = "; ".join(
            f"line {one['line']}, column {one['column']}: {one['message']}"
            + (f" (signature: {one['signature']})" if "signature" in one else "")
            for one in details
        )
        return CallError(ErrorCode.VALIDATION_ERROR, text, {"mistakes": details})

    # --- running ----------------------------------------------------------------------------------

    async def run(
        self,
        code: str,
        context: OperationContext,
        *,
        last: str = "",
        inputs: Mapping[str, Any] | None = None,
        trusted: bool = False,
        only_check: bool = False,
    ) -> Any:
        """Check and run a program as the caller of ``context``; return its result as JSON.

        Args:
            code: the program.
            context: the context of the call in which the program runs.
            last: a line to append, which is not checked.
            inputs: global variables of the program; JSON values by name.
            trusted: whether the program is part of the application, so that its calls skip the access check.
            only_check: whether to check the program without running it; the result is ``None``.

        Raises:
            CallError: ``VALIDATION_ERROR`` if the program has mistakes, ``EXECUTION_ERROR`` if it failed or
                exceeded a limit, ``TIMEOUT`` at its deadline, ``SERIALIZATION_ERROR`` if its result is not JSON,
                and ``OVERLOADED`` if another program called it and ``max_programs`` are running.
            ConfigError: the sandbox cannot be loaded.
        """
        deadline = (time.time() + self.config.timeout) * 1000
        if context.deadline is None or context.deadline > deadline:
            context = attrs.evolve(context, deadline=deadline)
        level = _depth.get()
        within("max_depth", self.config.max_depth, level + 1, "levels of programs")
        token = _depth.set(level + 1)
        try:
            async with asyncio.timeout(context.remaining()):
                return await self._run(code, context, last, inputs, trusted, only_check)
        except TimeoutError:
            message = f"the program took longer than timeout = {self.config.timeout:g} seconds"
            if context.deadline != deadline:
                message = "the program did not finish before the deadline of its call"
            raise CallError(ErrorCode.TIMEOUT, message, {"deadline": context.deadline}) from None
        except ProgramFailed as error:
            raise _failure(error) from None
        finally:
            _depth.reset(token)

    async def _run(
        self,
        code: str,
        context: OperationContext,
        last: str,
        inputs: Mapping[str, Any] | None,
        trusted: bool,
        only_check: bool,
    ) -> Any:
        registry: Any = context.registry
        surface = self.surface(registry, context, trusted=trusted)
        program, members = await self.program(code, registry, surface, last, inputs)
        if self.config.check or only_check:
            mistakes = await self.mistakes(program)
            if mistakes:
                raise self.explained(program, mistakes, surface)
        if only_check:
            return None
        if _depth.get() > 1 and self._places.locked():  # waiting for a place while holding one could wait forever
            bound = {"limit": "max_programs", "value": self.config.max_programs}
            message = f"max_programs = {self.config.max_programs} programs run already; try again later"
            raise CallError(ErrorCode.OVERLOADED, message, bound)
        async with self._places:
            env = context.env if trusted else context.env_as_caller
            host = Calls(self.config, context, env, members)
            result = await self.sandbox.run(program, host)
        # In a thread: a large result takes a while to look at.
        return await asyncio.to_thread(as_json, result, self.config.max_result, "the result")

    async def aclose(self) -> None:
        """End all programs; idempotent."""
        if self._sandbox is not None:
            await self._sandbox.aclose()


class Calls:
    """The `Host` of one program. It makes the calls of the program and enforces their limits."""

    def __init__(
        self, config: CodeConfig, context: OperationContext, env: OperationEnv, members: Sequence[Member]
    ) -> None:
        self._config, self._context, self._env = config, context, env
        self._members = {member.function: member for member in members}
        self._places = asyncio.Semaphore(config.max_parallel)
        self._count = 0

    async def call(self, function: str, args: Sequence[Any], fields: Mapping[str, Any]) -> Any:
        """Call an operation and return its data as a JSON value.

        Raises `CallFailed` if the call fails, with the error as JSON text, or if the program may not call
        ``function``, with the message of a ``NameError``.
        """
        member = self._members.get(function)
        if member is None:
            raise CallFailed(f"name '{function[:100]}' is not defined")
        try:
            self._count += 1
            within("max_calls", self._config.max_calls, self._count, "calls")
            given = as_json([list(args), dict(fields)], self._config.max_result, f"the input of {member.name}")
            async with self._places:
                return await self._answer(member, *given)
        except CallError as error:
            raise CallFailed(to_json(self._masked(error, member).to_wire()).decode()) from None
        except (TypeError, ValueError, OverflowError) as error:  # arguments that the stub does not have
            wrong = CallError(ErrorCode.VALIDATION_ERROR, f"{member.signature}: {error}")
            raise CallFailed(to_json(wrong.to_wire()).decode()) from None

    async def _answer(self, member: Member, args: list[Any], fields: dict[str, Any]) -> Any:
        timeout: float | None = fields.pop("timeout", None)
        operation = self._env[member.spec.id]
        if member.spec.type is OperationType.SUBSCRIPTION:
            return await self._take(member, args, fields, timeout)
        data = (await operation(*args, timeout=timeout, **fields)).data
        if isinstance(data, bytes | bytearray | memoryview):
            data = base64.b64encode(bytes(data)).decode()
        text = to_json(data)
        within("memory", self._config.memory, len(text), f"bytes in the result of {member.name}")
        return from_json(text)

    async def _take(
        self, member: Member, args: list[Any], fields: dict[str, Any], timeout: float | None
    ) -> list[Any]:
        """Return the first ``n`` items of a subscription, or those that arrive within ``timeout`` seconds."""
        count, *rest = args
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"expected n to be an integer above 0, got {repr(count)[:100]}")
        items: list[Any] = []
        size = 0
        try:
            async with (
                asyncio.timeout(timeout),
                self._env[member.spec.id].subscribe(*rest, **fields) as stream,
                aclosing(stream),
            ):
                async for envelope in stream:
                    text = to_json(envelope.data)
                    size += max(len(text), _SMALLEST)
                    within("max_result", self._config.max_result, size, f"bytes in the items of {member.name}")
                    items.append(from_json(text))
                    if len(items) == count:
                        break
                    await asyncio.sleep(0)  # a stream that never waits must not hold up the event loop
        except TimeoutError:
            pass
        return items

    def _masked(self, error: CallError, member: Member) -> CallError:
        declared = [definition.code for definition in member.spec.error_schemas]
        return mask_error(error, declared, mask=self._config.mask_errors, operation_id=member.spec.id)

    async def print(self, text: str) -> None:
        """Write the output of the program to the log of the call."""
        lines = [printable(line, _LINE) for line in text.splitlines()]
        await self._context.log(
            "info", "\n    ".join(lines), "operad.code"
        )  # no line can pass for another message


async def load_others(context: SourceContext) -> None:
    """Load the other configured sources, if the command line has loaded only this one for a single call."""
    registry = context.registry
    if context.operation is not None and (missing := not_loaded(context)):
        await registry.load_configured(missing)


def not_loaded(context: SourceContext) -> list[str]:
    """Return the names of the other configured sources that are neither loaded nor failed; without any, ``[]``."""
    registry = context.registry
    if registry is None or registry.configuration is None:
        return []
    known = {state.name for state in registry.sources.states()} | {context.name}
    return [name for name in registry.configuration.sources if name not in known]


async def completed(registry: Any, member: Member) -> Member:
    """Return the operation with its schemas, which a source may leave out until they are needed."""
    describe = getattr(registry, "describe", None)
    if member.spec.input_schema.raw is not True or describe is None:
        return member
    return member._replace(spec=await describe(member.spec.id) or member.spec)


def stub_text(members: Sequence[Member]) -> str:
    """Return the Python stubs of operations as text, grouped by namespace."""
    groups: dict[str, dict[str, Any]] = {}
    for member in members:
        groups.setdefault(member.variable, {})[member.attribute] = member.spec
    return "\n".join(f"# {name}\n{program_module(name, group)}" for name, group in groups.items())


def as_json(value: Any, limit: int, what: str) -> Any:
    """Return a value of a program as a value of JSON with at most ``limit`` bytes of text.

    A list that contains another list many times is small in a program but large as JSON. So the size is estimated
    before the value is written.

    Raises:
        CallError: ``EXECUTION_ERROR`` if the value is too large, or ``SERIALIZATION_ERROR`` if it is nested too
            deeply or is not JSON. The message calls the value ``what``.
    """
    waiting: list[tuple[Any, int]] = [([value], 0)]
    size = 0
    while waiting:
        item, level = waiting.pop()
        if isinstance(item, str):
            size += len(item)
            continue
        members: list[Any] = []
        if isinstance(item, dict):
            members = list(item.values())
            size += sum(len(str(key)) for key in item)
        elif isinstance(item, list | tuple):
            members = list(item)
        size += _SMALLEST + 2 * len(members) + sum(n.bit_length() // 4 for n in members if n.__class__ is int)
        within("max_result", limit, size, f"bytes in {what}")
        if level > _DEEPEST:
            raise CallError(ErrorCode.SERIALIZATION_ERROR, f"{what}: expected at most {_DEEPEST} levels, got more")
        waiting += [(each, level + 1) for each in members if each.__class__ in _SIZED]
    try:
        text = to_json(value)
    except CallError as error:
        raise CallError(error.code, f"{what}: {error.message}; convert it to JSON values", error.details) from None
    within("max_result", limit, len(text), f"bytes in {what}")
    return from_json(text)


def within(limit: str, most: int, found: int, what: str) -> None:
    """Raise `CallError` ``EXECUTION_ERROR`` if ``found`` is more than ``most``, the value of the option ``limit``.

    ``what`` states in the message what ``most`` measures, such as ``"bytes of code"``.
    """
    if found > most:
        message = f"expected at most {limit} = {most} {what}, got at least {found}"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"limit": limit, "value": most})


def _failure(error: ProgramFailed) -> CallError:
    text = str(error)
    text = text if len(text) <= _MESSAGE else text[:_MESSAGE] + "…"
    details: dict[str, Any] = {"message": text, "type": error.kind}
    if error.line is not None:
        details["line"] = error.line
    return CallError(ErrorCode.EXECUTION_ERROR, text, details)


def _meant(lines: Sequence[str], mistake: Mistake, surface: Surface) -> Member | None:
    """Return the last operation that is named before a mistake, else the one with the most similar name."""
    line = lines[mistake.line - 1] if mistake.line <= len(lines) else ""
    words = line.replace("(", " ").replace(")", " ").replace("[", " ").replace(",", " ").split()
    named = [word for word in words if "." in word]
    for word in reversed(named):
        if line.find(word) < mistake.column and (member := surface.find(word)) is not None:
            return member
    for word in named:
        variable, _, attribute = word.removesuffix(".take").partition(".")
        variable = nearest(variable, surface.variables) or ""
        if (found := nearest(attribute, surface.table(variable))) is not None:
            return surface.find(f"{variable}.{found}")
    return None


def _sandbox(config: CodeConfig) -> Sandbox:
    if config.sandbox is None:
        from operad_code.monty import MontySandbox

        return MontySandbox(config)
    try:
        return cast("Sandbox", pkgutil.resolve_name(config.sandbox)(config))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f'sandbox: expected module:name of a function that returns a Sandbox, got "{config.sandbox}": {reason}'
        ) from error
