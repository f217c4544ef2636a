"""Saved programs: the files of a folder as operations, read without running them."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import attrs

from operad import CallError, OperadError, Operation, OperationContext, OperationSpec, OperationType, SourceError
from operad.plugin import SourceContext, SourceSession
from operad_code.config import CodeConfig
from operad_code.running import Runner, load_others, not_loaded
from operad_code.surface import Surface

_LOOK = 1.0
"""Seconds between two checks of the folder for changes."""
_SETTLE = 0.1
"""Seconds after a change of the registry until the programs are checked again."""
LAST = "await main(**operad_input)"
"""The line that runs a saved program with its input."""
_SCALARS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}


class Unusable(Exception):
    """The error for a file that is not a saved program. The message has the path and, if known, the line."""


@attrs.frozen
class Saved:
    """A saved program, with the spec of its operation."""

    path: Path
    code: str
    spec: OperationSpec


def read(path: Path, namespace: str, max_code: int) -> Saved:
    """Return the saved program in a file. The annotations of its ``async def main(…)`` become its schemas.

    Raises:
        Unusable: the file cannot be read, is larger than ``max_code`` bytes, or is not Python; or ``main`` is
            missing, or has an annotation or a default that is not supported.
    """
    try:
        if (size := path.stat().st_size) > max_code:
            raise Unusable(f"{path}: expected at most max_code = {max_code} bytes, got {size}")
        code = path.read_text(encoding="utf-8")
        tree = ast.parse(code)
    except SyntaxError as error:
        raise Unusable(f"{path}:{error.lineno}: expected Python, got a syntax error: {error.msg}") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unusable(f"{path}: cannot be read: {reason}") from None
    main = next(
        (each for each in tree.body if isinstance(each, ast.AsyncFunctionDef) and each.name == "main"), None
    )
    if main is None:
        raise Unusable(f"{path}:1: expected `async def main(…)`, got no such function; add it")
    text = ast.get_docstring(main) or ast.get_docstring(tree) or ""
    try:
        spec = OperationSpec(
            namespace=namespace,
            name=path.stem,
            description=text,
            input_schema=_input(main.args),
            output_schema=None if main.returns is None else _schema(main.returns),
        )
    except _NoSchema as error:
        raise Unusable(f"{path}:{error}") from None
    except (OperadError, SyntaxError, RecursionError) as error:
        raise Unusable(f"{path}:{main.lineno}: {error}") from None
    return Saved(path, code, spec)


class _NoSchema(Exception):
    def __init__(self, node: ast.expr | ast.arg, problem: str) -> None:
        super().__init__(f"{node.lineno}: {problem}")


def _input(args: ast.arguments) -> dict[str, Any]:
    if args.vararg or args.kwarg or args.posonlyargs:
        odd = args.vararg or args.kwarg or args.posonlyargs[0]
        raise _NoSchema(odd, f'the parameter "{odd.arg}" cannot be a field of an input; use plain parameters')
    first = len(args.args) - len(args.defaults)
    defaults = [None] * first + list(args.defaults) + list(args.kw_defaults)
    properties: dict[str, Any] = {}
    required = []
    for arg, default in zip([*args.args, *args.kwonlyargs], defaults, strict=True):
        properties[arg.arg] = {} if arg.annotation is None else _schema(arg.annotation)
        if default is None:
            required.append(arg.arg)
            continue
        try:
            properties[arg.arg] = {**properties[arg.arg], "default": ast.literal_eval(default)}
        except ValueError:
            got = ast.unparse(default)[:60]
            raise _NoSchema(default, f'expected a constant as the default of "{arg.arg}", got {got}') from None
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(node: ast.expr) -> dict[str, Any]:
    """Return the schema of an annotation. Raises `_NoSchema` if the annotation is not supported."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _schema(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return {"anyOf": [_schema(node.left), _schema(node.right)]}
    name = _name(node.value if isinstance(node, ast.Subscript) else node)
    inner = list(getattr(node.slice, "elts", [node.slice])) if isinstance(node, ast.Subscript) else []
    if name in _SCALARS and not inner:
        return {"type": _SCALARS[name]}
    if name == "Any" and not inner:
        return {}
    if name == "list" and len(inner) < 2:
        return {"type": "array", **({"items": _schema(inner[0])} if inner else {})}
    if name == "dict" and len(inner) in (0, 2):
        return {"type": "object", **({"additionalProperties": _schema(inner[1])} if inner else {})}
    if name == "Literal" and inner and all(isinstance(each, ast.Constant) for each in inner):
        return {"enum": [each.value for each in inner if isinstance(each, ast.Constant)]}
    known = "str, int, float, bool, None, list[…], dict[str, …], Literal[…], Any or a union of them"
    raise _NoSchema(node, f"expected {known}, got {ast.unparse(node)[:60]}")


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


async def load(config: CodeConfig, context: SourceContext) -> SourceSession:
    """Return a session with the programs of the folder. Raises `SourceError` if the folder does not exist."""
    assert config.path is not None
    folder = context.path(config.path)
    if not folder.is_dir():
        raise SourceError(f"code: path: expected a folder of programs, got {folder}, which is not a folder")
    session = SavedSession(folder, config, context)
    await session.start()
    return session


class SavedSession(SourceSession):
    """A session with the programs of a folder. Changed files are read again.

    All programs are checked again when the operations of the registry change.
    """

    def __init__(self, folder: Path, config: CodeConfig, context: SourceContext) -> None:
        super().__init__()
        self._folder, self._config, self._context = folder, config, context
        self._runner = Runner(config)
        self._saved: dict[Path, Saved] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._reported: dict[Path, str] = {}
        self._unfit: dict[Path, str] = {}
        self._handlers: dict[Path, tuple[Saved, Operation[..., Any]]] = {}
        self._is_early = False
        self._again = asyncio.Event()
        self._stop: Any = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read and check the programs, and follow changes."""
        registry = self._context.registry
        await self._look()
        if registry is not None:
            self._stop = registry.on_change(self._again.set)
        await self._check()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def aclose(self) -> None:
        """Stop following changes, and end all programs."""
        if self._stop is not None:
            self._stop()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._runner.aclose()

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK):
                    await self._again.wait()
                await asyncio.sleep(_SETTLE)
                self._again.clear()
                await self._check()
            except TimeoutError:
                try:
                    if await self._look() or self._is_early:
                        await self._check()
                except Exception:
                    self._context.logger.exception("code: %s cannot be read", self._folder)
            except Exception:
                self._context.logger.exception("code: the programs of %s cannot be checked", self._folder)

    async def _look(self) -> bool:
        """Read the files that changed. Return True if there were any."""
        stamps = await asyncio.to_thread(_stamps, self._folder)
        if stamps == self._stamps:
            return False
        for path in {*stamps, *self._stamps}:
            if stamps.get(path) == self._stamps.get(path):
                continue
            self._saved.pop(path, None)
            if path not in stamps:
                self._report(path, None)
                continue
            try:
                namespace = self._context.namespace or "recipes"
                self._saved[path] = await asyncio.to_thread(read, path, namespace, self._config.max_code)
                self._report(path, None)
            except Unusable as error:
                self._report(path, str(error))
        self._stamps = stamps
        return True

    async def _check(self) -> None:
        """Check the types of all programs, and offer the programs without mistakes."""
        registry = self._context.registry
        self._is_early = False
        offered = []
        for path, saved in sorted(self._saved.items()):
            problem, is_query = await self._problem(saved, registry) if registry is not None else (None, False)
            self._report(path, problem)
            if problem is None:
                offered.append(self._operation(saved, is_query=is_query))
        if offered != list(self.operations):
            self.changed(offered)

    async def _problem(self, saved: Saved, registry: Any) -> tuple[str | None, bool]:
        """Return the reason why a program cannot run, or ``None``, and whether it calls no mutations."""
        is_early = bool(not_loaded(self._context))
        everything = Surface(registry.specs(), None, self._runner.chooses, trusted=True)
        try:
            program, members = await self._runner.program(saved.code, registry, everything)
        except CallError as error:
            return f"{saved.path}: {error.message}", False
        is_query = all(member.spec.type is not OperationType.MUTATION for member in members)
        if not self._config.check:
            return None, is_query
        mistakes = await self._runner.mistakes(program)
        if mistakes and is_early:  # the operations that it calls may still come
            self._is_early = True
            return None, False
        if not mistakes:
            return None, is_query
        lines = self._runner.explained(program, mistakes, everything)
        return f"{saved.path}: {lines.message}", False

    def _report(self, path: Path, problem: str | None) -> None:
        """Log the problem of a program, once until it changes; if ``None``, forget the last one."""
        if problem is not None and self._reported.get(path) != problem:
            self._context.logger.warning("program left out: %s", problem)
        if problem is None:
            self._reported.pop(path, None)
        else:
            self._reported[path] = problem

    def _operation(self, saved: Saved, *, is_query: bool) -> Operation[..., Any]:
        """Return the operation of a program; the same one if nothing changed."""
        kind = OperationType.QUERY if is_query else OperationType.MUTATION
        known = self._handlers.get(saved.path)
        if known is not None and known[0] is saved and known[1].spec.type is kind:
            return known[1]

        async def handle(input: Any, context: OperationContext) -> Any:
            await load_others(self._context)
            return await self._runner.run(saved.code, context, last=LAST, inputs={"operad_input": input})

        operation: Operation[..., Any] = Operation(attrs.evolve(saved.spec, type=kind), handle)
        self._handlers[saved.path] = saved, operation
        return operation


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in folder.glob("*.py"):
        if not path.name.startswith("_") and path.is_file():
            state = path.stat()
            found[path] = state.st_mtime_ns, state.st_size
    return found
