"""Run the calls that models make."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from operad import CallError, ConfigError, ErrorCode, OperationContext, OperationSpec, OperationType
from operad.plugin import mask_error, may_list
from operad.wire import from_json
from operad.words import nearest
from operad_llm import _results
from operad_llm._results import Outcome, failure_of, outcome_of
from operad_llm._schemas import INPUT, Json, parameters, without_nulls
from operad_llm.tools import Format, ToolList, argument_names, names_of

if TYPE_CHECKING:
    from operad import OperationRegistry

MAX_ITEMS = 100
"""The maximum number of items of a subscription that a model receives."""
_SHAPES = {
    "openai": _results.openai_result,
    "openai-responses": _results.responses_result,
    "anthropic": _results.anthropic_result,
    "gemini": _results.gemini_result,
    "mcp": _results.mcp_result,
}


@attrs.frozen
class _Call:
    """A call of a model, in any format."""

    format: Format
    id: str
    name: str
    arguments: Any


async def run_tool_call(
    registry: OperationRegistry,
    payload: Any,
    *,
    format: Format | None = None,
    offered: ToolList | None = None,
    context: OperationContext | None = None,
    timeout: float | None = 60.0,
    mask_errors: bool = True,
) -> dict[str, Any]:
    """Run a model's tool call on behalf of the caller in ``context``; return the result in the format of the call.

    Args:
        registry: the registry with the operations, the one that was passed to `tools`.
        payload: the call: an entry of OpenAI's ``tool_calls``, a ``function_call`` of its Responses API, a
            ``tool_use`` block, a ``functionCall`` part, or params of MCP's ``tools/call``; as a dict, or as the
            object of the vendor's SDK.
        format: the format of the payload; ``None`` to derive it from the fields of the payload.
        offered: the list that `tools` returned; the model can call no other tools. ``None`` for all operations.
        context: the caller that lets the model call. If ``None``, the call is anonymous, and guarded
            operations are denied.
        timeout: the time limit in seconds; ``None`` for no limit. The result of a subscription has the items until
            then, at most `MAX_ITEMS`.
        mask_errors: whether an undeclared exception is logged, and the model receives only a reference to the log.

    Returns:
        The message to send back. It contains the error if the tool is unknown, the arguments are not JSON, or the
        call fails.

    Raises:
        ConfigError: ``format`` is unknown.
        ValueError: the payload is not a whole call in a known format, so no response can be made.
    """
    call = _read(payload, format)
    spec: OperationSpec | None = None
    try:
        names = names_of(registry) if offered is None else offered.names
        context = context or OperationContext()
        spec, input = await _prepared(registry, call, names, context)
        outcome = await _run(registry, spec, input, context, timeout)
    except CallError as error:
        declared = () if spec is None else [definition.code for definition in spec.error_schemas]
        id = call.name if spec is None else spec.id
        outcome = failure_of(mask_error(error, declared, mask=mask_errors, operation_id=id))
    return _SHAPES[call.format](call.id, call.name, outcome)


async def _prepared(
    registry: OperationRegistry, call: _Call, names: Mapping[str, str], context: OperationContext
) -> tuple[OperationSpec, Any]:
    """Return the operation and its input. Raises `CallError` if the tool is unknown, or arguments are not JSON."""
    operation_id = names.get(call.name)
    spec = None if operation_id is None else await registry.describe(operation_id)
    if spec is None:
        name = call.name[:200]  # it is the model's
        specs = ((tool, registry.get_spec(id)) for tool, id in names.items())
        visible = [tool for tool, spec in specs if spec and may_list(spec.access_control, context.identity)]
        similar = nearest(name, visible)
        meant = "" if similar is None else f'; did you mean "{similar}"?'
        raise CallError(ErrorCode.OPERATION_NOT_FOUND, f'unknown tool "{name}"{meant}', {"name": name})
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as error:
            message = f"the arguments are not JSON: {str(error)[:200]}"
            raise CallError(ErrorCode.VALIDATION_ERROR, message, {"arguments": arguments[:200]}) from None
    arguments = {} if arguments is None else arguments
    return spec, _fitted(spec, arguments, call.format) if isinstance(arguments, dict) else arguments


def _fitted(spec: OperationSpec, arguments: Json, format: Format) -> Any:
    """Return the input for a model's arguments: with the original names, and without nulls for absent values."""
    if format != "anthropic" and spec.input_schema.is_valid(arguments):
        return arguments  # as it nearly always is
    schema, is_wrapped = parameters(spec)
    if format == "anthropic":
        names = argument_names(schema.get("properties", {}))
        arguments = {names.get(name, name): value for name, value in arguments.items()}
    arguments = without_nulls(arguments, schema, schema)
    return arguments.get(INPUT) if is_wrapped else arguments


async def _run(
    registry: OperationRegistry, spec: OperationSpec, input: Any, context: OperationContext, timeout: float | None
) -> Outcome:
    if spec.type is not OperationType.SUBSCRIPTION:
        return outcome_of(await registry.execute(spec.id, input, context, timeout=timeout))
    items: list[Any] = []
    is_whole = False
    try:
        async with asyncio.timeout(timeout), registry.subscribe(spec.id, input, context) as stream:
            async for envelope in stream:
                items.append(envelope.data)
                if len(items) == MAX_ITEMS:
                    break
            else:
                is_whole = True
    except TimeoutError:
        pass
    from operad import local_envelope

    return outcome_of(local_envelope({"items": items, "truncated": not is_whole}, spec.id))


# --- reading -------------------------------------------------------------------------------------------


def _read(payload: Any, format: Format | None) -> _Call:
    """Return a call in any format. Raises `ValueError` for any other object, `ConfigError` for a wrong format."""
    call = _as_json(payload)
    if format is not None and format not in _READ:
        raise ConfigError(f'format: expected one of {", ".join(_READ)}, got "{format}"')
    if not isinstance(call, Mapping):
        raise ValueError(f"expected a tool call as an object, got {type(payload).__name__}")
    seen = _looks_like(call)
    if format is None:
        if seen is None:
            fields = ", ".join(map(str, call))[:200] or "none"
            raise ValueError(f"expected a tool call in a known format, got the fields {fields}{_hint(call)}")
        format = seen
    return _READ[format](call)


def _hint(call: Mapping[str, Any]) -> str:
    """Return the end of a message: the part of the model's response to pass instead, or the type of the object."""
    for field, of in (
        ("tool_calls", "its tool_calls"),
        ("content", "its blocks of type tool_use"),
        ("parts", "its parts with a functionCall"),
        ("output", "its items of type function_call"),
    ):
        if isinstance(call.get(field), (list, tuple)):
            return f"; pass each of {of}"
    return f"; its type is {str(call['type'])[:50]}" if call.get("type") else ""


def _as_json(payload: Any) -> Any:
    dump = getattr(payload, "model_dump", None)  # objects of the vendors' SDKs, with fields that are null
    return dump(mode="json", by_alias=True) if callable(dump) else payload


def _looks_like(call: Mapping[str, Any]) -> Format | None:
    if isinstance(call.get("function"), Mapping):
        return "openai"
    if call.get("type") == "function_call":
        return "openai-responses"
    if call.get("type") == "tool_use":
        return "anthropic"
    if call.get("type"):
        return None  # a block, or an item, that is not a function call
    inner = call.get("functionCall") or call.get("function_call")
    if isinstance(inner, Mapping) or ("name" in call and "args" in call):
        return "gemini"
    if "name" in call or ("params" in call and call.get("method") == "tools/call"):
        return "mcp"
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _openai(call: Mapping[str, Any]) -> _Call:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    return _Call("openai", _text(call.get("id")), _text(function.get("name")), function.get("arguments"))


def _responses(call: Mapping[str, Any]) -> _Call:
    return _Call("openai-responses", _text(call.get("call_id")), _text(call.get("name")), call.get("arguments"))


def _anthropic(call: Mapping[str, Any]) -> _Call:
    return _Call("anthropic", _text(call.get("id")), _text(call.get("name")), call.get("input"))


def _gemini(call: Mapping[str, Any]) -> _Call:
    inner = call.get("functionCall") or call.get("function_call") or call
    inner = inner if isinstance(inner, Mapping) else {}
    if inner.get("willContinue") or inner.get("will_continue"):
        raise ValueError("expected a whole tool call, got a part of a streamed one; join the parts first")
    return _Call("gemini", _text(inner.get("id")), _text(inner.get("name")), inner.get("args"))


def _mcp(call: Mapping[str, Any]) -> _Call:
    inner: Json = call["params"] if isinstance(call.get("params"), dict) else dict(call)
    return _Call("mcp", "", _text(inner.get("name")), inner.get("arguments"))


_READ = {
    "openai": _openai,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "mcp": _mcp,
}
