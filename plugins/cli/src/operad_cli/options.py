"""What the commands share: the options that several take, the configuration that they find, quiet plugins."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from operad import ConfigError, Plugins, load_plugins

Command = Callable[..., Any]


@contextmanager
def quiet_plugins() -> Iterator[None]:
    """Plugins load without warnings in here; `operad plugins` shows what is wrong with which."""
    logger = logging.getLogger("operad")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_plugins_quietly() -> Plugins:
    """The installed plugins."""
    with quiet_plugins():
        return load_plugins()


def find_configuration(path: Path | None) -> Path | None:
    """The configuration to use: ``path``, or the nearest one from the current folder upwards."""
    if path is not None:
        return path
    if named := os.environ.get("OPERAD_CONFIG"):
        return Path(named)
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "operad.toml").is_file():
            return folder / "operad.toml"
        project = folder / "pyproject.toml"
        if project.is_file() and "[tool.operad" in project.read_text(encoding="utf-8", errors="replace"):
            return project
    return None


def require_configuration(config: Path | None) -> Path:
    """The configuration to use. Raises `ConfigError` if there is none."""
    path = find_configuration(config)
    if path is None:
        raise ConfigError(
            "there is no operad.toml here or in a folder above; `operad init` writes one, --config PATH names one"
        )
    return path


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show debug logs and tracebacks, and errors unmasked."
)


def output_options(command: Command) -> Command:
    """``--json`` and ``--debug``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(debug_option(command))


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
