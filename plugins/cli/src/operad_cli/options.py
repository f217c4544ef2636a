"""Options that several commands share, and functions that use their values.

Completion imports this module, so the module imports nothing of operad before a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from operad import Plugins

Command = Callable[..., Any]
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in a new event loop, and return its result."""
    import asyncio

    return asyncio.run(coroutine)


class Seconds(click.FloatRange):
    """The type of options in seconds. Errors call it "number of seconds", not "float range"."""

    name = "number of seconds"


class Count(click.IntRange):
    """The type of options for counts. Errors call it "whole number", not "integer range"."""

    name = "whole number"


def find_configuration(path: Path | None = None) -> Path | None:
    """Return the path of the configuration file, or None if no file is found.

    The first of these is returned:

    1. ``path``, if it is not None, even if the file does not exist
    2. the path in the environment variable ``OPERAD_CONFIG``, even if the file does not exist
    3. the nearest ``operad.toml``, or ``pyproject.toml`` with ``[tool.operad]``, in the current folder or a parent
    """
    if path is not None:
        return path
    if named := os.environ.get("OPERAD_CONFIG"):
        return Path(named)
    try:
        here = Path.cwd()
    except OSError:  # the folder was removed
        return None
    for folder in (here, *here.parents):
        if (found := folder / "operad.toml").is_file():
            return found
        if (project := folder / "pyproject.toml").is_file() and _has_tables(project):
            return project
    return None


def _has_tables(project: Path) -> bool:
    try:
        return "[tool.operad" in project.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another user's file
        return False


def require_configuration(config: Path | None) -> Path:
    """Return the path of the configuration file, see `find_configuration`.

    Raises `ConfigError` if no file is found, or the file that ``OPERAD_CONFIG`` names does not exist.
    """
    from operad import ConfigError

    path = find_configuration(config)
    if path is None:
        raise ConfigError(
            "no operad.toml in this folder or a parent folder, and no pyproject.toml with [tool.operad]; "
            "create one with `operad init`, or use --config PATH or OPERAD_CONFIG"
        )
    if config is None and str(path) == os.environ.get("OPERAD_CONFIG") and not path.exists():
        raise ConfigError(f"OPERAD_CONFIG is {path}, but there is no such file; correct or unset it")
    return path


@contextmanager
def quiet_plugins() -> Iterator[None]:
    """Suppress the warnings of operad while plugins load, because `operad plugins` shows their errors."""
    import logging

    logger = logging.getLogger("operad")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_plugins_quietly() -> Plugins:
    """Load the installed plugins without warnings, and return them."""
    from operad import load_plugins

    with quiet_plugins():
        return load_plugins()


def debug_option(command: Command) -> Command:
    """Add ``--debug`` and ``--log-format``, which `operad_cli.main` reads before the command line is parsed."""
    command = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        expose_value=False,
        help="Format of the logs; json includes trace ids.",
    )(command)
    return click.option(
        "--debug", is_flag=True, expose_value=False, help="Show debug logs, tracebacks and unmasked errors."
    )(command)


def output_options(command: Command) -> Command:
    """Add ``--json``, ``--debug`` and ``--log-format``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(debug_option(command))


def wait_option(command: Command) -> Command:
    """Add ``--wait``, for commands that open all sources."""
    return click.option(
        "--wait",
        metavar="SECONDS",
        type=Seconds(min=0, min_open=True),
        help="Skip sources that take longer to start. Default: wait for each until its own timeout.",
    )(command)


def _config(context: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    """Return the command's own ``--config``, else the one before the command."""
    return value or context.find_root().params.get("config")


_PROFILE = "operad.profile"
"""The key of the chosen profile in `click.Context.meta`, which a command shares with the group before it."""


def chosen_profile() -> str | None:
    """Return the profile of ``--profile``; None if the option is not given, so that ``OPERAD_PROFILE`` applies."""
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
    help="Apply [profiles.NAME] on top of the configuration. Default: $OPERAD_PROFILE.",
)


def config_option(command: Command) -> Command:
    """Add ``--config`` and ``--profile``."""
    return click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        callback=_config,
        help="The configuration file: an operad.toml, or a pyproject.toml with [tool.operad]. "
        "Default: $OPERAD_CONFIG, else the nearest one in this folder or a parent.",
    )(profile_option(command))
