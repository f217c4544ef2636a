"""The command ``operad hub``, which runs a hub with flags and the table ``[hub]``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

# The hub is imported when it is run, because the command line imports this module to list its commands.
if TYPE_CHECKING:
    from operad_auth import JWTOptions
    from operad_websocket.config import HubConfig

CONFIG_FILE = "operad.toml"


@click.command(name="hub")
@click.option("--listen", metavar="HOST:PORT", help="Address to listen on. Default: 127.0.0.1:8765.")
@click.option("--tokens", type=click.Path(), help='TOML or JSON file of bearer tokens: token = "id".')
@click.option("--jwks", metavar="URL", help="URL of keys for JSON Web Tokens; requires --issuer and --audience.")
@click.option("--issuer", help="Required issuer (`iss`).")
@click.option("--audience", help="Required audience (`aud`).")
@click.option("--cert", type=click.Path(), help="PEM file of a certificate with its chain, to serve wss://.")
@click.option("--key", type=click.Path(), help="PEM file of its key. Default: the file of --cert.")
@click.option("--origin", "origins", multiple=True, help="Origin of web pages that may connect. May be repeated.")
@click.option(
    "--drain",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Time to let running calls finish on shutdown. Default: 10.",
)
@click.option(
    "--check-frames",
    is_flag=True,
    default=None,
    help="Check each frame against its published schema, to test a client. Requires operad-websocket[check].",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    envvar="OPERAD_CONFIG",
    help="Configuration with a table [hub]. Default: operad.toml in this folder, if it exists.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show debug logs and tracebacks.")
def hub(
    listen: str | None,
    tokens: str | None,
    jwks: str | None,
    issuer: str | None,
    audience: str | None,
    cert: str | None,
    key: str | None,
    origins: tuple[str, ...],
    drain: float | None,
    check_frames: bool | None,
    config: Path | None,
) -> int:
    """Run a WebSocket hub.

    The hub routes calls between the processes that connect to it, until Ctrl-C. Running calls may then finish; a
    second Ctrl-C stops the hub immediately. Without authentication, only this machine can connect.
    """
    import attrs

    table, base_dir = _table(config)
    flags: dict[str, Any] = {
        "listen": listen,
        "cert": _absolute(cert),
        "key": _absolute(key),
        "tokens_file": _absolute(tokens),
        "allowed_origins": list(origins) or None,
        "drain": drain,
        "check_frames": check_frames,
        "jwt": _jwt(jwks, issuer, audience),
    }
    return asyncio.run(_run(attrs.evolve(table, **{k: v for k, v in flags.items() if v is not None}), base_dir))


def _absolute(path: str | None) -> str | None:
    """Return a path as an absolute path, from the current folder."""
    return None if path is None else str(Path(path).absolute())


def _jwt(jwks: str | None, issuer: str | None, audience: str | None) -> JWTOptions | None:
    if jwks is None and issuer is None and audience is None:
        return None
    if issuer is None or audience is None:
        raise click.UsageError(
            "--jwks requires --issuer and --audience; without them, tokens for other services would be valid"
        )
    from operad_auth import JWTOptions

    return JWTOptions(issuer=issuer, audience=audience, jwks=jwks)


def _table(config: Path | None) -> tuple[HubConfig, Path]:
    """Return the table ``[hub]``, and the folder from which its relative paths start."""
    from operad.config import load_configuration
    from operad_websocket.config import HubConfig

    # The group of the `operad` command takes both for every command; a plugin cannot import how.
    context = click.get_current_context()
    config = config or context.find_root().params.get("config")
    profile = context.meta.get("operad.profile")
    if config is None and profile is None and not Path(CONFIG_FILE).is_file():
        return HubConfig(), Path.cwd()
    configuration = load_configuration(config or CONFIG_FILE, profile)
    return configuration.table("hub", HubConfig), configuration.base_dir


async def _run(config: HubConfig, base_dir: Path) -> int:
    from operad.plugin import ConfigError
    from operad_auth.http import tell_manager, until_stopped
    from operad_websocket._served import ServedHub

    offered = ServedHub(config, base_dir)
    with until_stopped() as stopped:
        try:
            await offered.start()
        except OSError as error:
            # asyncio's own text repeats the address, differently in each version of Python
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise ConfigError(
                f"the hub cannot listen on {config.listen}: {reason}; use another address with --listen HOST:PORT"
            ) from None
        try:
            click.echo(f"hub on {offered.url}; press Ctrl-C to stop", err=True)
            tell_manager("READY=1")
            await stopped.wait()
            tell_manager("STOPPING=1")
            click.echo("draining", err=True)
            if not await offered.drain(config.drain):
                click.echo(f"calls that did not finish in {config.drain:g} s: {offered.pending}", err=True)
        finally:
            await offered.close()
    return 0
