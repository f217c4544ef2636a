"""Write the pages and files that say what the code says: commands, configuration, its schema, public names.

    uv run python tools/references.py            # with every distribution of the workspace installed

A test holds them up to date. What an option means is said once: in the help of a command, in the line below the
field of a configuration class.
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
    """The commands of all installed plugins with their help, as a terminal of 80 columns shows it."""
    from operad_cli.app import application

    group = application()
    parts = ["# The command line\n", "Written by `tools/references.py` from the commands themselves.\n"]
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
    from operad.registry.loading import SourceOptions

    plugins = load_plugins(strict=True)
    found: dict[str, tuple[type[Any], str]] = {
        "plugins": (PluginOptions, "Which plugins are loaded."),
        "registry": (RegistryOptions, "What the registry makes of results."),
        "sources.<name>": (SourceOptions, "What every source takes, besides `type` and its own keys."),
    }
    for name, source in sorted(plugins.sources.items()):
        found[f'sources.<name>, type = "{name}"'] = (source.config_type, source.description)
    for name, server in sorted(plugins.servers.items()):
        found[f"serve.{name}"] = (server.config_type, f"The server `{name}`.")
    return found


def reference_page() -> str:
    """The keys of every table: type, default, meaning."""
    about = "Written by `tools/references.py` from the classes that the tables become.\n"
    parts = ["# Configuration: every key\n", about]
    for title, (cls, words) in tables().items():
        parts.append(f"## [{title}]\n\n{words}\n\n| key | type | default | |\n|---|---|---|---|")
        meanings = documentation(cls)
        hints = get_type_hints(cls)
        for field in attrs.fields(cls):
            if field.init:
                meaning = meanings.get(field.name, "").replace("|", "\\|")
                parts.append(f"| `{field.alias}` | {_named(hints[field.name])} | {_default(field)} | {meaning} |")
        parts.append("")
    return "\n".join(parts)


def documentation(cls: type[Any]) -> dict[str, str]:
    """The text below each field, of the class and of those it inherits from."""
    words: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not attrs.has(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        words.update(_arguments(inspect.cleandoc(vars(base).get("__doc__") or "")))
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                words[field.target.id] = " ".join(str(text.value.value).split())
    return words


def _arguments(docstring: str) -> dict[str, str]:
    """What the section ``Args:`` of a docstring says of each name."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE) if section else []
    return {name: " ".join(text.split()) for name, text in entries}


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
        return "table " + ", ".join(f"`{field.alias}`" for field in attrs.fields(hint) if field.init)
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
    from operad.registry.loading import SourceOptions

    made: dict[str, Any] = {}
    shared = _object(SourceOptions)["properties"]
    kinds = []
    for title, (cls, about) in tables().items():
        schema = {"description": about, **_object(cls)}
        if title.startswith("sources.<name>, type"):
            name = title.split('"')[1]
            schema["properties"] = {"type": {"const": name}, **shared, **schema["properties"]}
            schema["required"] = ["type", *schema.get("required", ())]
            kinds.append(schema)
        elif title.startswith("serve."):
            made.setdefault("serve", {"type": "object", "properties": {}})["properties"][title[6:]] = schema
        elif "<" not in title:
            made[title] = schema
    made["sources"] = {"type": "object", "additionalProperties": {"oneOf": kinds}}
    for name in ("transport", "calls", "hub"):
        made.setdefault(name, {"type": "object"})
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


def files() -> dict[str, str]:
    """What is written, by its path in the repository."""
    return {
        "core/src/operad/__init__.pyi": stub("operad"),
        "core/src/operad/calls/__init__.pyi": stub("operad.calls"),
        "core/src/operad/plugin.pyi": stub("operad.plugin"),
        "docs/cli.md": cli_page(),
        "docs/configuration-reference.md": reference_page(),
        "docs/operad.schema.json": json.dumps(editor_schema(), indent=2, ensure_ascii=False) + "\n",
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for file, text in files().items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
