"""``operad hub``: the hub as a server that one can run, from flags and the table ``[hub]``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

# What a hub is made of is imported when one is run: the command line lists this command with every other.
if TYPE_CHECKING:
    from operad_auth import JWTOptions
    from operad_websocket.config import HubConfig

CONFIG_FILE = "operad.toml"


@click.command(name="hub")
@click.option("--listen", metavar="HOST:PORT", help="Where spokes connect. Default: 127.0.0.1:8765.")
@click.option("--tokens", type=click.Path(), help='A TOML or JSON file of bearer tokens: token = "id".')
@click.option("--jwks", metavar="URL", help="The keys of JSON Web Tokens; with --issuer and --audience.")
@click.option("--issuer", help="Who has to have issued them.")
@click.option("--audience", help="Whom they have to be for.")
@click.option("--cert", type=click.Path(), help="A certificate with its chain, PEM: serves wss://.")
@click.option("--key", type=click.Path(), help="Its key, PEM.")
@click.option("--origin", "origins", multiple=True, help="A web page's origin that may connect. May be repeated.")
@click.option(
    "--drain",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="For what is under way in the end. Default: 10.",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    envvar="OPERAD_CONFIG",
    help="A configuration with a table [hub]. Default: the operad.toml of this folder, if it has one.",
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
    config: Path | None,
) -> int:
    """Run a WebSocket hub.

    It routes calls between the processes that connect to it, until Ctrl-C; what is under way then is finished, and
    a second Ctrl-C ends it at once. Without tokens it listens on this machine only.
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
        "jwt": _jwt(jwks, issuer, audience),
    }
    return asyncio.run(_run(attrs.evolve(table, **{k: v for k, v in flags.items() if v is not None}), base_dir))


def _absolute(path: str | None) -> str | None:
    """A path of the command line, which starts from where the command was given."""
    return None if path is None else str(Path(path).absolute())


def _jwt(jwks: str | None, issuer: str | None, audience: str | None) -> JWTOptions | None:
    if jwks is None and issuer is None and audience is None:
        return None
    if issuer is None or audience is None:
        raise click.UsageError("--jwks needs --issuer and --audience: a token for anybody else would count, too")
    from operad_auth import JWTOptions

    return JWTOptions(issuer=issuer, audience=audience, jwks=jwks)


def _table(config: Path | None) -> tuple[HubConfig, Path]:
    """The table ``[hub]``, and where its relative paths start from."""
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
            # asyncio's own text repeats the address, in each version of Python another way
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise ConfigError(
                f"the hub cannot listen on {config.listen}: {reason}; name another address: --listen HOST:PORT"
            ) from None
        try:
            click.echo(f"hub on {offered.url}; Ctrl-C ends it", err=True)
            tell_manager("READY=1")
            await stopped.wait()
            tell_manager("STOPPING=1")
            click.echo("draining", err=True)
            if not await offered.drain(config.drain):
                click.echo(f"{offered.pending} calls were not finished in {config.drain:g} s", err=True)
        finally:
            await offered.close()
    return 0
