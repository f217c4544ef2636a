"""What the commands share: the options that several take, and what they find with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from operad_cli.finding import find
from operad_cli.opening import load_plugins_quietly, quiet_plugins, require_configuration

__all__ = [
    "Count",
    "Seconds",
    "chosen_profile",
    "config_option",
    "debug_option",
    "find_configuration",
    "load_plugins_quietly",
    "output_options",
    "profile_option",
    "quiet_plugins",
    "require_configuration",
    "wait_option",
]

Command = Callable[..., Any]


class Seconds(click.FloatRange):
    """A number of seconds; click would call one that is none "not a valid float range"."""

    name = "number of seconds"


class Count(click.IntRange):
    """A whole number."""

    name = "whole number"


def find_configuration(path: Path | None) -> Path | None:
    """The configuration to use: ``path``, or the nearest one from the current folder upwards."""
    found = find(None if path is None else str(path))
    return None if found is None else Path(found)


def debug_option(command: Command) -> Command:
    """``--debug`` and ``--log-format``, which `operad_cli.main` reads before anything is imported."""
    command = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        expose_value=False,
        help="Write logs as JSON lines, with the ids of their traces.",
    )(command)
    return click.option(
        "--debug", is_flag=True, expose_value=False, help="Show debug logs and tracebacks, and errors unmasked."
    )(command)


def output_options(command: Command) -> Command:
    """``--json`` and ``--debug``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(debug_option(command))


def wait_option(command: Command) -> Command:
    """``--wait``, of what opens all sources."""
    return click.option(
        "--wait",
        metavar="SECONDS",
        type=Seconds(min=0, min_open=True),
        help="Leave out sources that take longer to start. Default: as long as each may.",
    )(command)


def _config(context: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    """The command's own ``--config``, else the one that stands before the command."""
    return value or context.find_root().params.get("config")


_PROFILE = "operad.profile"
"""The key of the chosen profile in `click.Context.meta`, which a command shares with the group before it."""


def chosen_profile() -> str | None:
    """The profile that the command line names; ``None``: what ``OPERAD_PROFILE`` says counts."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_PROFILE)


def _keep_profile(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_PROFILE] = value


profile_option = click.option(
    "--profile",
    metavar="NAME",
    expose_value=False,
    callback=_keep_profile,
    help="The table [profiles.NAME] to lay over the configuration. Default: $OPERAD_PROFILE.",
)


def config_option(command: Command) -> Command:
    """``--config`` and ``--profile``."""
    return click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        callback=_config,
        help="The configuration: an operad.toml, or a pyproject.toml with [tool.operad]. "
        "Default: $OPERAD_CONFIG, else the nearest one, from this folder upwards.",
    )(profile_option(command))
