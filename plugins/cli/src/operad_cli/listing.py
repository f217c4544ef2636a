"""The commands that show what can be called: ``list``, ``search``, ``describe``, ``plugins``, and the demo."""

from __future__ import annotations

import asyncio
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import click

from operad import OperationRegistry, OperationSpec
from operad_cli import plain, render
from operad_cli.completion import complete_id
from operad_cli.opening import not_found, open_registry
from operad_cli.options import (
    Count,
    chosen_profile,
    config_option,
    find_configuration,
    load_plugins_quietly,
    output_options,
    quiet_plugins,
    wait_option,
)


@click.command()
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


@click.command(name="list")
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
                render.print_specs(
                    found, as_json=as_json, nothing=_why_empty(registry, pattern), before=len(shown)
                )
            return render.report_failures(registry)

    return asyncio.run(command())


@click.command()
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
            nothing = "Nothing fits; try fewer words." if len(registry) else _why_empty(registry, "*")
            render.print_specs(found[:limit], as_json=as_json, of=len(found), nothing=nothing)
            return render.report_failures(registry)

    return asyncio.run(command())


@click.command()
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

    return asyncio.run(command())


@click.command()
@click.option("--keep", is_flag=True, help="Leave the API up afterwards, until Ctrl-C.")
@output_options
def demo(keep: bool, as_json: bool) -> int:
    """Show what operad is for, in seconds.

    An HTTP API, an MCP server and a folder of functions are called one way.
    """
    from operad_cli.demo import run_demo

    return asyncio.run(run_demo(keep=keep, as_json=as_json))


def _why_empty(registry: OperationRegistry, pattern: str) -> str:
    """Why a list is empty, and what to do."""
    if len(registry):
        return f"No operation fits {pattern}; there are {len(registry)}."
    if registry.failures:
        return "No operations: no source could be loaded."
    if registry.configuration is not None and registry.configuration.sources:
        return "No operations: the sources have none. A scanned folder needs functions marked with @operation."
    return "No operations: the configuration has no [sources]; `operad init` shows how they are written."
