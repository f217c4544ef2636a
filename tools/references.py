"""Make the pages and files that the code determines: commands, configuration, its schema, lazy names, the API.

    uv run python tools/references.py            # with every distribution of the workspace installed

It writes the schema for editors and the types of lazy names; a test keeps them up to date. The pages are not
written: the build of the site takes them from `pages()`. What an option means is stated once: in the help of a
command, or in the line below the field of a configuration class.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import click

ROOT = Path(__file__).resolve().parents[1]


# --- commands ----------------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the commands of all installed plugins with their help, as a terminal of 80 columns shows it."""
    from operad_cli.app import application

    group = application()
    parts = ["# The command line\n", "Every command with its options, as `--help` shows it.\n"]
    for names, command in _commands((), group):
        title = " ".join(("operad", *names))
        context = click.Context(command, info_name=title, terminal_width=80, max_content_width=80)
        context.help_option_names = ["-h", "--help"]
        parts.append(f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "\n".join(parts)


def _commands(names: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands((*names, name), found)


# --- configuration -----------------------------------------------------------------------------------


def tables() -> dict[str, tuple[type[Any], str]]:
    """The class of each table of a configuration, and a line about it."""
    from operad import load_plugins
    from operad.config.file import PluginOptions, RegistryOptions
    from operad.config.sources import SourceOptions
    from operad_calls import CallSettings
    from operad_serve.door.options import ServeOptions

    plugins = load_plugins(strict=True)
    found: dict[str, tuple[type[Any], str]] = {
        "plugins": (PluginOptions, "Which plugins are loaded."),
        "registry": (RegistryOptions, "What the registry makes of results."),
        "sources.<name>": (SourceOptions, "What every source takes, besides `type` and its own keys."),
    }
    for name, source in sorted(plugins.sources.items()):
        found[f'sources.<name>, type = "{name}"'] = (source.config_type, source.description)
    found["calls"] = (CallSettings, "The bounds of calls between processes.")
    for factory in dict.fromkeys(plugins.transports[scheme] for scheme in sorted(plugins.transports)):
        url = f"{factory.schemes[0]}://…"
        assert factory.config_type is not None
        found[f'transport, url = "{url}"'] = (factory.config_type, f"Options of {' and '.join(factory.schemes)}.")
    found["serve"] = (ServeOptions, "What `operad serve` serves, and to whom.")
    for name, server in sorted(plugins.servers.items()):
        found[f"serve.{name}"] = (server.config_type, f"The server `{name}`.")
    for contributed in plugins.implementations("operad_tables"):
        for table in contributed():
            found[table.name] = (table.config_type, table.description)
    return found


def given() -> set[str]:
    """The fields of transports that their URL fills, which are no options."""
    from operad import load_plugins

    return {factory.given for factory in load_plugins(strict=True).transports.values()} | {"url"}


def options(title: str, cls: type[Any]) -> list[attrs.Attribute[Any]]:
    """The keys of a table: the fields that it may say."""
    no_options = given() if title.startswith("transport") else set()
    return [field for field in attrs.fields(cls) if field.init and field.alias not in no_options]


def parts(cls: type[Any]) -> dict[str, type[Any]]:
    """The classes of the tables within a table, by key."""
    hints = get_type_hints(cls)
    return {
        field.alias: part
        for field in attrs.fields(cls)
        if field.init and field.alias and (part := _part(hints[field.name])) is not None
    }


def _part(hint: Any) -> type[Any] | None:
    if getattr(get_origin(hint), "__name__", "") == "Callable":
        return None
    if isinstance(hint, type) and attrs.has(hint):
        return hint
    return next((found for member in get_args(hint) if (found := _part(member)) is not None), None)


def reference_page() -> str:
    """The keys of every table: type, default, meaning."""
    from operad.config.file import ARRAYS

    about = "Every table of an `operad.toml`. [Configuration](configuration.md) shows how they are used.\n"
    made = ["# Configuration: every key\n", about]
    found = tables()
    homes = homes_of(found)
    for title, (cls, words) in found.items():
        heading = f"[[{title}]]" if title in ARRAYS else f"[{title}]"
        made.append(f"## `{heading}`\n\n{words}\n\n{_keys(title, cls, homes)}")
    made.append("## Tables in tables\n")
    for cls, name in homes.items():
        words = prose(inspect.cleandoc(vars(cls).get("__doc__") or "")).partition("\n")[0]
        made.append(f"### {name}\n\n{words}\n\n{_keys(name, cls, homes)}")
    return "\n".join(made)


def homes_of(found: Mapping[str, tuple[type[Any], str]]) -> dict[type[Any], str]:
    """The classes of tables within tables, each with a name of its own."""
    homes: dict[type[Any], str] = {}
    pending = [(cls, "") for cls, _ in found.values()]
    for cls, _ in pending:
        for key, part in parts(cls).items():
            if part not in homes:
                same = [name for name in homes.values() if name.split(" of ")[0] == key]
                owner = part.__module__.partition(".")[0].replace("_", "-")
                homes[part] = f"{key} of {owner}" if same else key
                pending.append((part, key))
    return homes


def _keys(title: str, cls: type[Any], homes: Mapping[type[Any], str]) -> str:
    """A table of Markdown with a line for each key."""
    lines = ["| key | type | default | meaning |\n|---|---|---|---|"]
    meanings, hints, within = documentation(cls), get_type_hints(cls), parts(cls)
    for field in options(title, cls):
        meaning = meanings.get(field.name, "").replace("|", "\\|")
        kind = _named(hints[field.name])
        if (part := within.get(field.alias or "")) is not None:
            anchor = re.sub(r"[^\w -]", "", homes[part].lower()).replace(" ", "-")
            kind = kind.replace(_table(part), f"table [{homes[part]}](#{anchor})")
        lines.append(f"| `{field.alias}` | {kind} | {_default(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _table(cls: type[Any]) -> str:
    return "table " + ", ".join(f"`{field.alias}`" for field in attrs.fields(cls) if field.init)


def documentation(cls: type[Any]) -> dict[str, str]:
    """The text below each field, of the class and of those it inherits from."""
    words: dict[str, str] = {}
    told = inspect.cleandoc(vars(cls).get("__doc__") or "")
    told_here = {
        name: " ".join(text.split())
        for name, text in re.findall(r"^``(\w+)``: (.*?)(?=^``\w+``:|\Z)", told, re.MULTILINE | re.DOTALL)
    }
    for base in reversed(cls.__mro__):
        if not (attrs.has(base) or base.__module__.startswith("operad")):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        words.update(_arguments(inspect.cleandoc(vars(base).get("__doc__") or "")))
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, text in pairwise(body):
            if (
                isinstance(field, (ast.AnnAssign, ast.Assign))
                and isinstance(
                    target := field.targets[0] if isinstance(field, ast.Assign) else field.target, ast.Name
                )
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                words[target.id] = " ".join(str(text.value.value).split())
    return words | told_here


def _arguments(docstring: str) -> dict[str, str]:
    """What the section ``Args:`` of a docstring says of each name."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE) if section else []
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _named(hint: Any) -> str:
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_named(member) for member in members if member is not NoneType))
    if origin is Literal:
        return " or ".join(f"`{json.dumps(member)}`" for member in members)
    if origin in (list, tuple, set, frozenset) or hint in (list, tuple, set, frozenset):
        return f"list of {_named(members[0])}" if members and members[0] is not Any else "list"
    if origin is not None and issubclass(origin, Mapping):
        return f"table of {_named(members[1])}" if members[1] is not Any else "table"
    if attrs.has(hint):
        return _table(hint)
    plain = {str: "string", int: "integer", float: "number", bool: "true or false", Path: "path", Any: "anything"}
    return plain.get(hint) or getattr(hint, "__name__", str(hint))


def _default(field: attrs.Attribute[Any]) -> str:
    if field.default is attrs.NOTHING:
        return "needed"
    if hasattr(field.default, "factory"):
        return ""
    value = field.default
    return "" if value is None else f"`{json.dumps(value, default=str)}`"


# --- for editors -------------------------------------------------------------------------------------


def editor_schema() -> dict[str, Any]:
    """The JSON Schema of an operad.toml: completion and checks in editors that know schemas of TOML."""
    from operad.config.file import ARRAYS
    from operad.config.sources import SourceOptions

    made: dict[str, Any] = {}
    shared = _object(SourceOptions)["properties"]
    kinds: list[dict[str, Any]] = []
    transport: dict[str, Any] = {"url": {"type": "string", "description": "Where the hub or broker is."}}
    for title, (cls, about) in tables().items():
        schema = {"description": about, **_object(cls)}
        if title.startswith("sources.<name>, type"):
            name = title.split('"')[1]
            schema["properties"] = {"type": {"const": name}, **shared, **schema["properties"]}
            schema["required"] = ["type", *schema.get("required", ())]
            kinds.append(schema)
        elif title.startswith("transport,"):
            transport.update({field.alias: schema["properties"][field.alias] for field in options(title, cls)})
        elif title.startswith("serve."):
            if title == "serve.mcp":  # the command's own key
                schema["properties"]["stdio"] = {"type": "boolean"}
            keys = made["serve"]["properties"]
            keys[title[6:]] = {"anyOf": [keys[title[6:]], schema]} if title[6:] in keys else schema
        elif "<" not in title:
            made[title] = {"type": "array", "items": schema} if title in ARRAYS else schema
    # Of other plugins there are other servers, transports and sources.
    made["serve"]["additionalProperties"] = {"type": "object"}
    made["transport"] = {"type": "object", "properties": transport}
    others = {"not": {"enum": [kind["properties"]["type"]["const"] for kind in kinds]}}
    kinds.append({"type": "object", "required": ["type"], "properties": {"type": others}})
    made["sources"] = {"type": "object", "additionalProperties": {"oneOf": kinds}}
    made["include"] = {"type": "array", "items": {"type": "string"}}
    made["profiles"] = {"type": "object", "additionalProperties": {"type": "object"}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "operad.toml",
        "type": "object",
        "properties": dict(sorted(made.items())),
        "additionalProperties": False,
    }


def _object(cls: type[Any]) -> dict[str, Any]:
    words, hints = documentation(cls), get_type_hints(cls)
    properties, required = {}, []
    for field in attrs.fields(cls):
        if field.init and field.alias:
            schema = _schema(hints[field.name])
            if text := words.get(field.name):
                schema = {"description": text, **schema}
            properties[field.alias] = schema
            if field.default is attrs.NOTHING:
                required.append(field.alias)
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def _schema(hint: Any) -> dict[str, Any]:  # a table of kinds
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        parts = [_schema(member) for member in members if member is not NoneType]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}
    if origin is Literal:
        return {"enum": list(members)}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if origin in (list, tuple, set, frozenset):
        return {"type": "array", "items": _schema(members[0])}
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(members[1])}
    if isinstance(hint, type) and attrs.has(hint):
        return _object(hint)
    # A number or a switch may come from the environment: "${NAME}".
    plain = {str: "string", Path: "string", int: ["integer", "string"], float: ["number", "string"]}
    plain[bool] = ["boolean", "string"]
    return {"type": plain[hint]} if hint in plain else {}


# --- the API -----------------------------------------------------------------------------------------

FACES = ["operad", "operad.sync", "operad.auth", "operad.plugin", "operad.testing", "operad_openapi", "operad_mcp"]
FACES += [
    "operad_scanner",
    "operad_serve",
    "operad_llm",
    "operad_websocket",
    "operad_nats",
    "operad_redis",
    "operad_opentelemetry",
    "operad_search",
    "operad_rules",
    "operad_code",
]
"""What may be imported; a name that several give is described with the first."""


def api_pages() -> dict[str, str]:
    """Return a page for each module that may be imported: its public names, for mkdocstrings to describe."""
    homes: dict[tuple[str, int], str] = {}
    index = ["# API reference\n", "What you may import. Everything else may change in any version.\n"]
    pages = {}
    for face in FACES:
        module = importlib.import_module(face)
        about = inspect.cleandoc(module.__doc__ or "").partition("\n")[0]
        about = re.sub(r"^(operad|`[\w.]+`): (\w)", lambda begin: begin[2].upper(), about)
        index.append(f"- [`{face}`]({face}.md): {about}")
        parts = [f"# {face}\n\n{about}\n"]
        for name in module.__all__:
            value = getattr(module, name)
            home = homes.setdefault((name, id(value)), face)
            see = f"See [`{home}.{name}`]({home}.md#{name.lower()}).\n"
            parts.append(f"## {name}\n\n{_described(name, value) if home == face else see}")
        pages[f"api/{face}.md"] = "\n".join(parts)
    return {"api/README.md": "\n".join(index) + "\n", **pages}


def _described(name: str, value: Any) -> str:
    """Return what a page says about a public name: classes and functions are left to mkdocstrings."""
    if inspect.isclass(value) or inspect.isfunction(value):
        is_made = not (
            inspect.isclass(value) and (issubclass(value, Enum) or getattr(value, "_is_protocol", False))
        )
        how = signature(name, value) if is_made else ""
        return f"{how}::: {value.__module__}.{value.__qualname__}\n"
    if inspect.ismodule(value):
        return f"The module `{value.__name__}`. {inspect.cleandoc(value.__doc__ or '')}\n"
    source, words = assigned(name)
    return f"```python\n{source}\n```\n\n{words}\n" if 0 < len(source) < 400 else f"{words}\n"


def signature(name: str, value: Any) -> str:
    """How ``value`` is called, the same with each version of Python; nothing where Python cannot tell."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    words = []
    kinds = [parameter.kind for parameter in found.parameters.values()]
    for position, (key, parameter) in enumerate(found.parameters.items()):
        if parameter.kind is parameter.KEYWORD_ONLY and not {parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY} & {
            *kinds[:position]
        }:
            words.append("*")
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        hint = "" if parameter.annotation is parameter.empty else f": {_hint(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_literal(parameter.default)}"
        if key not in ("self", "cls"):
            words.append(f"{stars}{key}{hint}{default}")
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.POSITIONAL_ONLY not in kinds[position + 1 :]:
            words.append("/")
    is_async = inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
    result = "" if inspect.isclass(value) or found.return_annotation is found.empty else found.return_annotation
    ends = f") -> {_hint(result)}" if result else ")"
    line = f"{'async ' if is_async else ''}{name}({', '.join(words)}{ends}"
    if len(line) > 100:
        line = f"{line.partition('(')[0]}(\n    " + ",\n    ".join(words) + f",\n{ends}"
    return f"```python\n{line}\n```\n\n"


def _hint(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _literal(value: Any) -> str:
    """A default as it may be written; ``...`` for what is made anew or has no short form."""
    if isinstance(value, Enum) and value is not attrs.NOTHING:
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset) and not value:
        return "frozenset()"
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__qualname__
    is_plain = isinstance(value, (str, bytes, int, float, tuple, NoneType)) and len(repr(value)) < 60
    return repr(value) if is_plain and "<" not in repr(value) else "..."


def prose(docstring: str) -> str:
    """A docstring as Markdown: the entries of its sections become lists, what follows ``::`` becomes code."""

    def shown(code: re.Match[str]) -> str:
        before = f"{code[1]}:\n\n" if code[1] else ""
        return f"{before}```python\n{textwrap.dedent(code[2]).strip()}\n```\n\n"

    def listed(section: re.Match[str]) -> str:
        entries = re.findall(r"^ {4}(\S.*(?:\n {5,}.*)*)", section[2], re.MULTILINE)
        made = [re.sub(r"^([*\w, ]+): ", r"`\1`: ", " ".join(entry.split())) for entry in entries]
        return f"{section[1]}:\n\n" + "".join(f"- {entry}\n" for entry in made) + "\n"

    code = r"^(.*)::\n\n((?: {4}.*\n|\n(?= {4}))+)\n*"
    docstring = re.sub(code, shown, docstring + "\n", flags=re.MULTILINE)
    pattern = r"^(Args|Raises|Returns|Yields|Attributes):\n((?: {4}.*\n|\n(?= {4}))+)\n*"
    return re.sub(pattern, listed, docstring, flags=re.MULTILINE).strip()


def assigned(name: str) -> tuple[str, str]:
    """Return the assignment that makes a public name, and the text below it."""
    homes = (
        key for key in sys.modules if key.startswith("operad") and getattr(sys.modules[key], "__file__", None)
    )
    for module in sorted(homes):
        source = Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
        if not re.search(rf"^{name}\b", source, re.MULTILINE):
            continue  # most modules need not be parsed
        for line, text in pairwise([*ast.parse(source).body, ast.Pass()]):
            targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                below = getattr(getattr(text, "value", None), "value", "") if isinstance(text, ast.Expr) else ""
                return ast.get_source_segment(source, line) or "", prose(inspect.cleandoc(str(below)))
    return "", ""


# --- for type checkers -------------------------------------------------------------------------------


def stub(name: str) -> str:
    """The public names of a module, for type checkers: at run time each is imported when it is first used."""
    module = importlib.import_module(name)
    homes = [(home, each) for home, names in module._HOMES.items() for each in names.split()]
    # A name like its module's stands for the module.
    found = [(home.removesuffix(f".{each}"), each) for home, each in homes]
    found.sort(key=lambda one: (one[0], not one[1].isupper(), one[1][0].islower(), one[1].lower()))
    imports = "".join(f"from {home} import {each} as {each}\n" for home, each in found)
    listed = "".join(f'    "{each}",\n' for each in module.__all__)
    head = f"# Written by tools/references.py from the table in {Path(str(module.__file__)).name}."
    return f"{head}\n\n{imports}\n__all__ = [\n{listed}]\n"


def pages() -> dict[str, str]:
    """Return the pages that the build of the site makes, by their paths in docs/."""
    return {"cli.md": cli_page(), "configuration-reference.md": reference_page(), **api_pages()}


def files() -> dict[str, str]:
    """Return what is written, by its path: a stub for each module of lazy names, and the schema of operad.toml."""
    stubs = {}
    for source in sorted([*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]):
        if "= lazily(__name__" in source.read_text(encoding="utf-8"):
            parts = source.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")
            stubs[source.relative_to(ROOT).with_suffix(".pyi").as_posix()] = stub(module)
    return stubs | {"docs/operad.schema.json": json.dumps(editor_schema(), indent=2, ensure_ascii=False) + "\n"}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for file, text in files().items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
