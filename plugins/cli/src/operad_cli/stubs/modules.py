"""The modules of a package of types: one for each namespace, and ``__init__.pyi``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from operad import ErrorDefinition, OperationSpec, OperationType
from operad.names import attribute_names, keyword_names
from operad_cli.stubs.types import WORDS, Types, class_name, docstring, without
from operad_schema import object_members
from operad_schema.bundling import SharedDefinitions

MARK = "# Written by `operad stubs`. Changes are lost when it runs again.\n"
_IMPORTS = {
    "collections.abc": ("AsyncGenerator", "Mapping", "Sequence"),
    "typing": ("Any", "Literal", "Never", "NotRequired", "TypeAlias", "TypedDict"),
    "operad": ("ResponseEnvelope", "Subscription"),
}
_RUNTIME = '''\
"""The types of this configuration's operations. At run time these are the classes of operad."""

from operad import OperationContext as Context
from operad import OperationEnv as Env
from operad import OperationRegistry as Registry

__all__ = ["Context", "Env", "Registry"]
'''
_TIMEOUT = "timeout: float | None = ..."
_TEXT = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*+"""|\'(?:[^\'\\]|\\.)*+\'|"(?:[^"\\]|\\.)*+"', re.DOTALL)
_OWN = frozenset({"ResponseEnvelope", "Subscription"})
_LOOSE = frozenset({"Mapping", "Sequence"})
_TYPE = re.compile(r"(?<![\w'\"])\w+\b(?!:)")
_TYPED_DICT = re.compile(r"(?:class )?(\w+)(?:\(TypedDict\)| = TypedDict\()")
_HOMES = {name: home for home in ("collections.abc", "operad") for name in _IMPORTS[home]}


def package(specs: Sequence[OperationSpec]) -> dict[str, str]:
    """Return the files of a package with the types of operations, as file name -> text."""
    spaces: dict[str, list[OperationSpec]] = {}
    for spec in specs:
        spaces.setdefault(spec.namespace, []).append(spec)
    modules = attribute_names(spaces)
    files = {f"{module}.pyi": _module(module, spaces[space]) for module, space in modules.items()}
    return {"__init__.py": MARK + _RUNTIME, "__init__.pyi": _face(modules), "py.typed": "", **files}


def program_module(name: str, specs: Mapping[str, OperationSpec], *, loose: bool = False) -> str:
    """Return the types of a namespace for programs of code mode: a module with one object of that name.

    Calling an operation returns its data. ``take`` of a subscription returns a list of items.

    Args:
        name: the name of the namespace in programs.
        specs: the operations by attribute.
        loose: whether inputs may be any mappings and sequences. With TypedDicts and lists, type checkers reject
            ``[{"a": n} for n in …]``, for them a list of dicts. The call itself checks the input.
    """
    shared = SharedDefinitions()
    client = class_name(name)
    client = client if client != name else f"{client}_"
    types = Types(shared.definitions, {*specs, *_OWN, *_LOOSE, client, name, "self"})
    methods = [_method(attribute, spec, types, shared) for attribute, spec in sorted(specs.items())]
    if loose:
        methods = [attrs.evolve(one, parameters=_loosened(one.parameters, types.blocks)) for one in methods]
    hidden = (WORDS | _LOOSE) & specs.keys()
    streams, parts = [], [f"class {client}:\n"]
    for one in methods:
        if not one.is_stream:
            parts.append(_signature("async def", one, one.result, hidden))
            continue
        stream = f"_{class_name(one.attribute)}Stream"
        take = attrs.evolve(one, attribute="take", parameters=_with_count(one.parameters))
        streams.append(f"class {stream}:\n" + _signature("async def", take, f"list[{one.result}]", ()))
        parts.append(f"    @property\n    def {one.attribute}(self) -> {stream}: ...\n")
    body = "\n".join([*types.blocks, *streams, "".join(parts), f"{name}: {client}\n"])
    return "\n".join([_imports(body, hidden), body])


def _loosened(parameters: str, blocks: Iterable[str]) -> str:
    classes = {found[1] for block in blocks if (found := _TYPED_DICT.match(block))}
    parameters = re.sub(r"\blist\[", "Sequence[", re.sub(r"\bdict\[", "Mapping[", parameters))
    return _TYPE.sub(lambda name: f"{name[0]} | Mapping[str, Any]" if name[0] in classes else name[0], parameters)


def one_line(attribute: str, spec: OperationSpec) -> str:
    """Return the signature of an operation in programs of code mode: ``add(*, a: int) -> int``."""
    shared = SharedDefinitions()
    one = _method(attribute, spec, Types(shared.definitions, ()), shared)
    parameters = _with_count(one.parameters) if one.is_stream else one.parameters
    shown = [part for part in parameters.removeprefix("self, ").split(", ") if part != _TIMEOUT]
    shown = shown[:-1] if shown[-1:] == ["*"] else shown
    name, result = (f"{attribute}.take", f"list[{one.result}]") if one.is_stream else (attribute, one.result)
    return f"{name}({', '.join(shown)}) -> {result}"


def _with_count(parameters: str) -> str:
    """Return the parameters of ``take``: the number of items, then the input."""
    return re.sub(r"^self, (?=\*)", "self, n: int, /, ", re.sub(r"^self, (?=input)", "self, n: int, ", parameters))


@attrs.frozen
class _Method:
    attribute: str
    name: str
    parameters: str
    """The parameters, with ``self`` and ``timeout``."""
    result: str
    about: str
    is_stream: bool
    deprecated: bool


def _module(module: str, specs: Sequence[OperationSpec]) -> str:
    shared = SharedDefinitions()
    client = class_name(module)
    attributes = attribute_names(spec.name for spec in specs)
    types = Types(shared.definitions, {*attributes, *_OWN, client, f"{client}Env", "self"})
    by_name = {spec.name: spec for spec in specs}
    methods = [_method(attribute, by_name[name], types, shared) for attribute, name in sorted(attributes.items())]
    hidden = (WORDS | _OWN) & attributes.keys()
    clients = [_client(client, methods, hidden), *_env(f"{client}Env", methods, hidden)]
    body = "\n".join([*types.blocks, *clients])
    return "\n".join([MARK + _imports(body, hidden), body])


def _imports(body: str, hidden: Iterable[str]) -> str:
    """Return the imports that the body needs. pyright's strict mode rejects unused imports.

    Names in texts, and names of methods, parameters and fields, do not count.
    """
    code = _TEXT.sub("", body)
    used = {
        home: [name for name in names if re.search(rf"(?<!def )\b{name}\b(?!: (?!\.\.\.))", code)]
        for home, names in _IMPORTS.items()
    }
    aliases = [word for word in sorted(hidden) if re.search(rf"\b_{word}\b", code)]
    return "".join(
        [f"from {home} import {', '.join(names)}\n" for home, names in used.items() if names]
        + [f"from {_home(word)} import {word} as _{word}\n" for word in aliases]
    )


def _home(word: str) -> str:
    return _HOMES.get(word, "typing" if word[0].isupper() else "builtins")


def _method(attribute: str, spec: OperationSpec, types: Types, shared: SharedDefinitions) -> _Method:
    hint = class_name(attribute)
    parameters, lines = _parameters(spec.input_schema.bundled(shared), hint, types, shared.definitions)
    result = types.of(spec.output_schema.bundled(shared), f"{hint}Result")
    title, text = spec.title or spec.name, spec.description.strip()
    about = f"{title}\n\n{text}" if text and not text.startswith(title) else text or title
    if lines:
        about += "\n\nArgs:\n" + "\n".join(lines)
    if spec.error_schemas:
        about += "\n\nRaises:\n" + "\n".join(_error_line(each) for each in spec.error_schemas)
    is_stream = spec.type is OperationType.SUBSCRIPTION
    return _Method(attribute, spec.name, parameters, result, docstring(about, " " * 8), is_stream, spec.deprecated)


def _error_line(error: ErrorDefinition) -> str:
    text = _first_line({"description": error.description})
    return f"    {error.code}: {text}" if text else f"    {error.code}"


def _parameters(schema: Any, hint: str, types: Types, definitions: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the parameters of a method and the lines that document them."""
    properties, required = object_members(schema, definitions, branches=True)
    if not properties and isinstance(schema, Mapping) and schema.get("additionalProperties") is False:
        return f"self, *, {_TIMEOUT}", []
    if not properties and types.of(schema, hint) in ("Any", "dict[str, Any]"):
        return f"self, input: Any = ..., /, *, {_TIMEOUT}, **fields: Any", []
    if not properties:
        return f"self, input: {types.of(schema, f'{hint}Input')}, /, *, {_TIMEOUT}", []
    made = {
        word: (types.of(properties[name], hint + class_name(name)), name in required, properties[name])
        for word, name in keyword_names(properties).items()
    }
    ordered = sorted(made.items(), key=lambda item: not item[1][1])
    words = [f"{word}: {type}{'' if needed else ' = ...'}" for word, (type, needed, _) in ordered]
    extra = schema.get("additionalProperties", False) if isinstance(schema, Mapping) else False
    rest = [] if extra is False else [f"**{_free('fields', made)}: Any"]
    lines = [f"    {word}: {_first_line(field)}" for word, (_, _, field) in ordered if _first_line(field)]
    return ", ".join(["self", "*", *words, _TIMEOUT, *rest]), lines


def _free(name: str, taken: Iterable[str]) -> str:
    return name if name not in taken else _free(f"{name}_", taken)


def _first_line(field: Any) -> str:
    text = field.get("description") if isinstance(field, Mapping) else None
    return re.split(r"(?<=[.!?])\s|\n\s*\n", text.strip())[0].replace("\n", " ") if isinstance(text, str) else ""


def _client(name: str, methods: Sequence[_Method], hidden: frozenset[str] | set[str]) -> str:
    parts = [f"class {name}:\n"]
    for one in methods:
        kind, result = (
            ("def", f"AsyncGenerator[{one.result}, None]") if one.is_stream else ("async def", one.result)
        )
        parts.append(_signature(kind, one, result, hidden))
    return "".join(parts)


def _env(name: str, methods: Sequence[_Method], hidden: frozenset[str] | set[str]) -> list[str]:
    parts, streams = [f"class {name}:\n"], []
    for one in methods:
        if one.is_stream:
            stream = f"_{class_name(one.attribute)}Stream"
            call = attrs.evolve(one, attribute="__call__")
            again = attrs.evolve(one, attribute="subscribe")
            streams.append(
                f"class {stream}:\n"
                + _signature("async def", call, f"ResponseEnvelope[{one.result}]", ())
                + _signature("def", again, "Subscription", ())
            )
            parts.append(f"    @property\n    def {one.attribute}(self) -> {stream}: ...\n")
        else:
            parts.append(_signature("async def", one, f"ResponseEnvelope[{one.result}]", hidden))
    return [*streams, "".join(parts)]


def _signature(kind: str, one: _Method, result: str, hidden: Iterable[str]) -> str:
    head = f"    {kind} {one.attribute}(%s) -> %s:"
    parameters = without(one.parameters, hidden) if hidden else one.parameters
    result = without(result, hidden) if hidden else result
    return f"{head % (parameters, result)}\n{one.about}" if one.about else f"{head % (parameters, result)} ...\n"


def _face(modules: Mapping[str, str]) -> str:
    """Return ``__init__.pyi``: the registry, context and env with all namespaces."""
    imports = "".join(f"from . import {module} as _{module}\n" for module in sorted(modules))
    clients = "".join(
        "    @overload\n"
        f"    def client(self, namespace: Literal[{space!r}]) -> _{module}.{class_name(module)}: ...\n"
        for module, space in sorted(modules.items())
    )
    if clients:
        clients += "    @overload\n    def client(self, namespace: str) -> Any: ..."
    spaces = "".join(
        f"    @property\n    def {module}(self) -> _{module}.{class_name(module)}Env: ...\n"
        for module, space in sorted(modules.items())
        if module == space and space != "namespace"
    )
    others = "".join(
        "    @overload\n"
        f"    def namespace(self, namespace: Literal[{space!r}]) -> _{module}.{class_name(module)}Env: ...\n"
        for module, space in sorted(modules.items())
        if module != space or space == "namespace"
    )
    if others:
        others += "    @overload\n    def namespace(self, namespace: str) -> Any: ...\n"
    return f"""{MARK}from typing import Any, Literal, overload

from operad import OperationContext, OperationEnv, OperationRegistry

{imports}
class Env(OperationEnv):
{spaces + others or "    pass"}
class Context(OperationContext):
    @property
    def env(self) -> Env: ...
    @property
    def env_as_caller(self) -> Env: ...

class Registry(OperationRegistry):
{clients or "    pass"}
"""
