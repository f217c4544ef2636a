"""The commands ``operad login`` and ``operad logout``, which store and delete the token of a source."""

from __future__ import annotations

import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from operad import ConfigError, OperationRegistry
from operad_cli.options import (
    Seconds,
    chosen_profile,
    config_option,
    find_configuration,
    output_options,
    quiet_plugins,
    run,
)
from operad_cli.output.text import print_json, print_text

if TYPE_CHECKING:
    from operad_auth import Login

account_option = click.option(
    "--account", metavar="NAME", help="The account, if there are several. Default: the account of the source."
)


def _registry(config: Path | None) -> OperationRegistry:
    """Return the registry without loading sources, because some cannot be loaded before the login."""
    path = find_configuration(config)
    if path is None:
        raise ConfigError(
            "no operad.toml in this folder or a parent folder, and no pyproject.toml with [tool.operad]; "
            "use --config PATH or OPERAD_CONFIG"
        )
    with quiet_plugins():
        return OperationRegistry.from_config(path, profile=chosen_profile())


@click.command()
@click.argument("source")
@account_option
@click.option(
    "--no-browser", is_flag=True, help="Do not open a browser. Print a URL, or a code to enter elsewhere."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=1),
    default=300.0,
    show_default=True,
    help="Time limit for the login.",
)
@config_option
@output_options
def login(
    source: str, account: str | None, no_browser: bool, timeout: float, config: Path | None, as_json: bool
) -> int:
    """Log in to the service of SOURCE.

    SOURCE is the name of a table [sources.SOURCE]. The token is stored in the system's keyring, or in a file that
    only you can read. The source uses and renews it.
    """

    async def command() -> str:
        entry: Login = await _registry(config).source_login(source, account)
        open_url = None if no_browser else webbrowser.open
        # With --json only the result goes to standard output.
        return await entry.login(tell=partial(click.echo, err=as_json), open_url=open_url, timeout=timeout)

    message = run(command())
    if as_json:
        print_json({"source": source, "loggedIn": True, "message": message})
    else:
        print_text(f"Logged in; {message}.")
    return 0


@click.command()
@click.argument("source")
@account_option
@config_option
@output_options
def logout(source: str, account: str | None, config: Path | None, as_json: bool) -> int:
    """Delete the stored token of SOURCE.

    The token is revoked if the server supports that.
    """

    async def command() -> str:
        entry: Login = await _registry(config).source_login(source, account)
        return await entry.logout()

    message = run(command())
    if as_json:
        print_json({"source": source, "loggedIn": False, "message": message})
    else:
        print_text(f"Done: {message}.")
    return 0
