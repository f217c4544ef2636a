"""The source ``code``: the operations ``search``, ``describe`` and ``run``, or a folder of saved programs."""

from __future__ import annotations

import asyncio
from typing import Any

from operad import CallError, ErrorCode, Operation, OperationContext, OperationSpec, OperationType
from operad.plugin import SourceContext, SourceSession
from operad.words import printable
from operad_code.config import CodeConfig
from operad_code.running import Runner, completed, load_others, stub_text, within
from operad_code.surface import OF_CODE_MODE, Member

GUIDE = (
    "Programs are Python without classes that inherit, generators, `async for`, `async with`, `del` and most "
    "modules (asyncio.gather, json, re, math and datetime are there). Call operations with `await` and keywords: "
    '`issues = await github.issues_list(owner="o", repo="r")`; results are JSON values. `asyncio.gather` runs '
    "calls at the same time. Read a subscription with `await github.events.take(10, timeout=5)`. An error of a "
    'call is a RuntimeError whose text is JSON: {"code", "message", "details"}. The value of the last line, or of '
    "a `return`, is the result."
)
"""The description of programs for models."""

_MOST = 20
_SEARCH = "Find operations by what they do. Returns their names and signatures, as Python."
_DESCRIBE = "Return the Python types, descriptions and errors of operations, by name."
_RUN = f"Run a program that calls operations. Its types are checked first. {GUIDE}"


async def load(config: CodeConfig, context: SourceContext) -> SourceSession:
    """Return a session with ``search``, ``describe`` and ``run``, or with the saved programs of ``path``.

    Raises `SourceError` if the folder of saved programs does not exist.
    """
    if config.path is not None:
        from operad_code.saved import load as load_saved

        return await load_saved(config, context)
    return CodeSession(config, context)


class CodeSession(SourceSession):
    """A session with the operations ``search``, ``describe`` and ``run``."""

    def __init__(self, config: CodeConfig, context: SourceContext) -> None:
        self.runner, self._context = Runner(config), context
        namespace = context.namespace or "code"
        super().__init__(
            [
                _operation(namespace, "search", _SEARCH, self._search, _words("query", "A few words."), {
                    "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                }),
                _operation(namespace, "describe", _DESCRIBE, self._describe, {"names": {
                    "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": _MOST,
                    "description": "Names that search returned, such as github.issues_list.",
                }}),
                _operation(namespace, "run", _RUN, self._run, _words("code", "The program.")),
            ]
        )  # fmt: skip

    async def aclose(self) -> None:
        """End all programs; idempotent."""
        await self.runner.aclose()

    async def _search(self, input: dict[str, Any], context: OperationContext) -> str:
        await load_others(self._context)
        registry: Any = context.registry
        surface, limit = self.runner.surface(registry, context), input.get("limit", 10)
        found: list[Member] = []
        for depth in (4 * limit, len(registry)):  # what the caller may not see makes room for the next
            best = registry.search(input["query"], depth)
            members = [surface.find(spec.id) for spec in best]
            found = [member for member in members if member is not None][:limit]
            if len(found) == limit or len(best) < depth:
                break
        found = [await completed(registry, member) for member in found]
        # In threads: large schemas take long to read.
        return await asyncio.to_thread("\n".join, map(_line, found)) or "# no operation matches; use other words"

    async def _describe(self, input: dict[str, Any], context: OperationContext) -> str:
        await load_others(self._context)
        registry: Any = context.registry
        surface = self.runner.surface(registry, context)
        members = {name: surface.find(name) for name in input["names"]}
        if unknown := [name for name, member in members.items() if member is None]:
            message = f"unknown operations: {', '.join(name[:100] for name in unknown)}; search returns the names"
            raise CallError(ErrorCode.VALIDATION_ERROR, message, {"names": unknown})
        found = [await completed(registry, member) for member in members.values() if member is not None]
        text = await asyncio.to_thread(stub_text, found)
        within("max_result", self.runner.config.max_result, len(text), "characters of types (ask for fewer names)")
        return text

    async def _run(self, input: dict[str, Any], context: OperationContext) -> Any:
        await load_others(self._context)
        return await self.runner.run(input["code"], context)


def _line(member: Member) -> str:
    text = (member.spec.title or member.spec.description).strip().partition("\n")[0]
    return f"{member.signature}  # {printable(text, 100)}" if text else member.signature


def _words(name: str, description: str) -> dict[str, Any]:
    return {name: {"type": "string", "minLength": 1, "description": description}}


def _operation(
    namespace: str, name: str, description: str, handler: Any, required: dict[str, Any], more: Any = None
) -> Operation[..., Any]:
    spec = OperationSpec(
        namespace=namespace,
        name=name,
        type=OperationType.MUTATION if name == "run" else OperationType.QUERY,
        description=description,
        input_schema={
            "type": "object",
            "properties": {**required, **(more or {})},
            "required": list(required),
            "additionalProperties": False,
        },
        output_schema=None if name == "run" else {"type": "string"},
        metadata={OF_CODE_MODE: name},
    )
    return Operation(spec, handler)
