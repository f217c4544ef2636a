"""The commands of ``operad``."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import sys
from collections.abc import Coroutine, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import click

from operad import OperationRegistry, OperationSpec
from operad_cli import plain, render
from operad_cli.completion import complete_id
from operad_cli.lazygroup import LazyGroup
from operad_cli.one_call import not_found
from operad_cli.opening import open_registry
from operad_cli.options import (
    Count,
    chosen_profile,
    config_option,
    find_configuration,
    load_plugins_quietly,
    output_options,
    profile_option,
    quiet_plugins,
    wait_option,
)

T = TypeVar("T")


def application(arguments: Sequence[str] = ()) -> click.Group:
    """The command line; with what plugins add, unless ``arguments`` name a command that is there without them."""
    if cli.knows(_command_of(arguments)):
        return cli
    for add_commands in load_plugins_quietly().implementations("operad_commands"):
        try:
            add_commands(cli=cli)
        except Exception as error:  # noqa: BLE001  # one plugin's mistake must not take the command line away
            logging.getLogger("operad.cli").warning("%r could not add its commands: %s", add_commands, error)
    return cli


def _command_of(arguments: Sequence[str]) -> str:
    """The word that names the command; a shell that completes gives the words in its environment."""
    words = iter(arguments or os.environ.get("COMP_WORDS", "").split()[1:-1])
    for word in words:
        if word in ("-c", "--config", "--profile"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine."""
    return asyncio.run(coroutine)


# --- commands ------------------------------------------------------------------------------------------


@click.group(
    cls=LazyGroup,
    later={
        "call": "operad_cli.calling:call",
        "completion": "operad_cli.completion:completion",
        "doctor": "operad_cli.setting_up:doctor",
        "init": "operad_cli.setting_up:init",
        "login": "operad_cli.login:login",
        "logout": "operad_cli.login:logout",
        "mcp-config": "operad_cli.serve:mcp_config",
        "new-plugin": "operad_cli.new_plugin:new_plugin",
        "serve": "operad_cli.serve:serve",
        "stubs": "operad_cli.stubs:stubs",
        "subscribe": "operad_cli.calling:subscribe",
        "trace": "operad_cli.calling:trace",
    },
    elsewhere={"hub": "operad-websocket"},
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.version_option(importlib.metadata.version("operad"), prog_name="operad")
@click.option("-c", "--config", type=click.Path(path_type=Path), help="The configuration, for every command.")
@profile_option
def cli(config: Path | None) -> None:
    """Operations of all kinds, called one way.

    Exit codes: 0 success, 1 an error (of a call, a source, a check), 2 wrong usage, 130 Ctrl-C.

    \b
    operad init                       write a configuration from what is here
    operad list                       what can be called
    operad call ID key=value          call it
    operad serve --http 127.0.0.1:8000
    """


@cli.command()
@config_option
@output_options
def plugins(config: Path | None, as_json: bool) -> int:
    """List plugins, and what is wrong with them.

    All that are installed, and what each contributes; [plugins] of the configuration is heeded.
    """
    path = find_configuration(config)
    if path is None:
        records = load_plugins_quietly().records
    else:
        with quiet_plugins():
            records = OperationRegistry.from_config(path, profile=chosen_profile(), sources=()).plugins.records
    if as_json:
        plain.print_json([render.plugin_to_json(record) for record in records])
    else:
        render.print_plugins(records)
    return 1 if any(record.status in ("failed", "conflict", "incompatible") for record in records) else 0


@cli.command(name="list")
@click.argument("pattern", default="*")
@wait_option
@config_option
@output_options
def list_operations(pattern: str, wait: float | None, config: Path | None, as_json: bool) -> int:
    """List the operations of all sources.

    With a PATTERN, such as "shop.*", those whose id fits it. Where sources take long to start, a terminal shows
    what the others have, and theirs when they come.
    """
    shown: set[str] = set()

    def fitting(registry: OperationRegistry) -> list[OperationSpec]:
        return [spec for spec in registry.specs() if fnmatchcase(spec.id, pattern) and spec.id not in shown]

    def show_first(registry: OperationRegistry, slow: list[str]) -> None:
        if found := fitting(registry):
            render.print_specs(found, so_far=slow)
            shown.update(spec.id for spec in found)

    async def command() -> int:
        first = None if as_json or not sys.stdout.isatty() else show_first
        async with open_registry(config, profile=chosen_profile(), wait=wait, meanwhile=first) as registry:
            found = fitting(registry)
            if found or not shown:
                render.print_specs(found, as_json=as_json, nothing=_nothing(registry, pattern), before=len(shown))
            return render.report_failures(registry)

    return run(command())


@cli.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n",
    "--limit",
    metavar="COUNT",
    type=Count(min=1),
    default=10,
    show_default=True,
    help="Show so many.",
)
@wait_option
@config_option
@output_options
def search(words: tuple[str, ...], limit: int, wait: float | None, config: Path | None, as_json: bool) -> int:
    """Find operations by words.

    Those of their id, title, description and tags.
    """

    async def command() -> int:
        async with open_registry(config, profile=chosen_profile(), wait=wait) as registry:
            found = registry.search(" ".join(words), limit=max(limit, 1_000))
            nothing = "Nothing fits; try fewer words." if len(registry) else _nothing(registry, "*")
            render.print_specs(found[:limit], as_json=as_json, of=len(found), nothing=nothing)
            return render.report_failures(registry)

    return run(command())


@cli.command()
@click.argument("operation_id", metavar="ID", shell_complete=complete_id)
@config_option
@output_options
def describe(operation_id: str, config: Path | None, as_json: bool) -> int:
    """Show what an operation is, takes and answers."""

    async def command() -> int:
        async with open_registry(config, operation_id, profile=chosen_profile()) as registry:
            spec = await registry.describe(operation_id)
            if spec is None:
                raise not_found(registry, operation_id)
            render.print_spec(spec, as_json=as_json)
            return 0

    return run(command())


@cli.command()
@click.option("--keep", is_flag=True, help="Leave the API up afterwards, until Ctrl-C.")
@output_options
def demo(keep: bool, as_json: bool) -> int:
    """Show what operad is for, in seconds.

    An HTTP API, an MCP server and a folder of functions are called one way.
    """
    from operad_cli.demo import run_demo

    return run(run_demo(keep=keep, as_json=as_json))


def _nothing(registry: OperationRegistry, pattern: str) -> str:
    """Why a list is empty, and what to do."""
    if len(registry):
        return f"No operation fits {pattern}; there are {len(registry)}."
    if registry.failures:
        return "No operations: no source could be loaded."
    if registry.configuration is not None and registry.configuration.sources:
        return "No operations: the sources have none. A scanned folder needs functions marked with @operation."
    return "No operations: the configuration has no [sources]; `operad init` shows how they are written."
