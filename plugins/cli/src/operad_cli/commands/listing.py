"""The commands that show operations and plugins: ``list``, ``search``, ``describe`` and ``plugins``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from operad_cli.completion.candidates import complete_id
from operad_cli.options import (
    Count,
    chosen_profile,
    config_option,
    find_configuration,
    load_plugins_quietly,
    output_options,
    quiet_plugins,
    run,
    wait_option,
)

if TYPE_CHECKING:
    from operad import OperationRegistry, OperationSpec


@click.command()
@config_option
@output_options
def plugins(config: Path | None, as_json: bool) -> int:
    """List installed plugins and their errors.

    The list shows what each plugin contributes. The table [plugins] of the configuration selects plugins.
    """
    from operad import OperationRegistry
    from operad_cli.output.text import print_json, print_text

    path = find_configuration(config)
    if path is None:
        records = load_plugins_quietly().records
    else:
        with quiet_plugins():
            records = OperationRegistry.from_config(path, profile=chosen_profile(), sources=()).plugins.records
    if as_json:
        print_json([record.to_wire() for record in records])
    elif records:
        from operad_cli.output.tables import print_plugins

        print_plugins(records)
    else:
        print_text("No plugins are installed. Try: pip install operad-openapi operad-mcp operad-scanner")
    return 1 if any(record.status in ("failed", "conflict", "incompatible") for record in records) else 0


@click.command(name="list")
@click.argument("pattern", default="*")
@wait_option
@config_option
@output_options
def list_operations(pattern: str, wait: float | None, config: Path | None, as_json: bool) -> int:
    """List the operations of all sources.

    PATTERN, such as "shop.*", selects ids. If some sources are slow to start, a terminal shows the operations of
    the others first.
    """
    from operad_cli.output.errors import report_failures
    from operad_cli.running.opening import open_registry

    shown: set[str] = set()

    def matching(registry: OperationRegistry) -> list[OperationSpec]:
        return [spec for spec in registry.specs() if fnmatchcase(spec.id, pattern) and spec.id not in shown]

    def show_first(registry: OperationRegistry, slow: list[str]) -> None:
        if found := matching(registry):
            _print(found, f"{_count(found)} so far; still starting: {', '.join(slow)}")
            shown.update(spec.id for spec in found)

    async def command() -> int:
        first = None if as_json or not sys.stdout.isatty() else show_first
        async with open_registry(config, profile=chosen_profile(), wait=wait, meanwhile=first) as registry:
            found = matching(registry)
            total = f"{_count(found)} more, {len(shown) + len(found)} in all" if shown else _count(found)
            if found or not shown:
                _print(found, total, as_json=as_json, nothing=_why_empty(registry, pattern))
            return report_failures(registry)

    return run(command())


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n",
    "--limit",
    metavar="COUNT",
    type=Count(min=1),
    default=10,
    show_default=True,
    help="Maximum number of results.",
)
@wait_option
@config_option
@output_options
def search(words: tuple[str, ...], limit: int, wait: float | None, config: Path | None, as_json: bool) -> int:
    """Search operations by words.

    The words are searched in ids, titles, descriptions and tags.
    """
    from operad_cli.output.errors import report_failures
    from operad_cli.running.opening import open_registry

    async def command() -> int:
        async with open_registry(config, profile=chosen_profile(), wait=wait) as registry:
            await registry.prepare_search()
            found = registry.search(" ".join(words), limit=max(limit, 1_000))
            total = _count(found[:limit])
            if len(found) > limit:
                total += f" of {len(found)}; --limit shows more"
            nothing = "No matches; try fewer words." if len(registry) else _why_empty(registry, "*")
            _print(found[:limit], total, as_json=as_json, nothing=nothing)
            return report_failures(registry)

    return run(command())


@click.command()
@click.argument("operation_id", metavar="ID", shell_complete=complete_id)
@config_option
@output_options
def describe(operation_id: str, config: Path | None, as_json: bool) -> int:
    """Show the description and schemas of an operation."""

    from operad_cli.output.results import print_spec
    from operad_cli.running.opening import not_found, open_registry

    async def command() -> int:
        async with open_registry(config, operation_id, profile=chosen_profile()) as registry:
            spec = await registry.describe(operation_id)
            if spec is None:
                raise not_found(registry, operation_id)
            print_spec(spec, as_json=as_json)
            return 0

    return run(command())


def _print(specs: Sequence[OperationSpec], total: str, *, as_json: bool = False, nothing: str = "") -> None:
    """Print operations and their number; or JSON; or the text ``nothing`` if there are no operations."""
    from operad_cli.output.text import paragraph, print_json, print_text, styled

    if as_json:
        print_json([spec.to_wire(schemas=False) for spec in specs])
    elif specs:
        from operad_cli.output.tables import print_specs

        print_specs(specs)
        print_text(styled(paragraph(total, indent=""), "dim"))
    else:
        print_text(paragraph(nothing, indent=""))


def _count(specs: Sequence[OperationSpec]) -> str:
    return f"{len(specs)} operation{'' if len(specs) == 1 else 's'}"


def _why_empty(registry: OperationRegistry, pattern: str) -> str:
    """Return the reason why a list is empty, and what to do."""
    if len(registry):
        return f"No operation matches {pattern}; there are {len(registry)} operations."
    if registry.failures:
        return "No operations: no source could be loaded."
    if registry.configuration is not None and registry.configuration.sources:
        kinds = {state.type for state in registry.sources.states()}
        told = ["No operations: the sources are empty."]
        if "scanner" in kinds:
            told.append("A scanned folder needs functions with @operation.")
        if "remote" in kinds:
            told.append(
                "A remote source needs a process that serves its operations there, such as `operad serve`."
            )
        return " ".join(told)
    return "No operations: the configuration has no [sources]; see `operad init`."
