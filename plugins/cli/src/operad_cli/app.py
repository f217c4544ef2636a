"""The command group ``operad``. The module of a command is imported when the command is used."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path

import click

from operad_cli.options import load_plugins_quietly, profile_option

_COMMANDS = {
    "call": "operad_cli.commands.calling:call",
    "completion": "operad_cli.completion.scripts:completion",
    "demo": "operad_cli.commands.demo:demo",
    "describe": "operad_cli.commands.listing:describe",
    "doctor": "operad_cli.commands.doctor:doctor",
    "init": "operad_cli.commands.init:init",
    "list": "operad_cli.commands.listing:list_operations",
    "login": "operad_cli.commands.login:login",
    "logout": "operad_cli.commands.login:logout",
    "mcp-config": "operad_cli.commands.mcp_config:mcp_config",
    "new-plugin": "operad_cli.commands.new_plugin:new_plugin",
    "plugins": "operad_cli.commands.listing:plugins",
    "search": "operad_cli.commands.listing:search",
    "stubs": "operad_cli.commands.stubs:stubs",
    "subscribe": "operad_cli.commands.calling:subscribe",
    "trace": "operad_cli.commands.calling:trace",
}
"""``module:attribute`` of each built-in command."""
_ELSEWHERE = {
    "hub": "operad-websocket", "pin": "operad-mcp", "rules": "operad-rules", "run": "operad-code",
    "serve": "operad-serve",
}  # fmt: skip
"""The distribution that adds a command."""


class CommandGroup(click.Group):
    """The group of all commands. Plugins are loaded for a command that is not built in, and for listings."""

    _has_plugins = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        self._add_plugins()
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name, or None if no command has the name."""
        if cmd_name not in self.commands:
            if cmd_name in _COMMANDS:
                module, _, attribute = _COMMANDS[cmd_name].partition(":")
                self.add_command(getattr(import_module(module), attribute), cmd_name)
            else:
                self._add_plugins()
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.short_help is None and command.help:
            # click would cut the sentence, also for shells that complete the name.
            command.short_help = " ".join(command.help.partition("\n\n")[0].split())
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and its arguments, as click does.

        Raises `click.UsageError` if the command is unknown. The message may name the distribution to install.
        """
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            if name in _ELSEWHERE:
                distribution = _ELSEWHERE[name]
                raise click.UsageError(
                    f"the command {name} comes with {distribution}, which is not loaded; install it: "
                    f"pip install {distribution}, or see `operad plugins`",
                    ctx,
                )
            for each in self.list_commands(ctx):  # click suggests names of imported commands only
                self.get_command(ctx, each)
        return super().resolve_command(ctx, args)

    def _add_plugins(self) -> None:
        if self._has_plugins:
            return
        self._has_plugins = True
        for add_commands in load_plugins_quietly().implementations("operad_commands"):
            try:
                add_commands(cli=self)
            except Exception as error:  # noqa: BLE001  # a mistake of one plugin must not break the command line
                logging.getLogger("operad.cli").warning(
                    "the commands of a plugin are missing; fix or disable the plugin: %s.%s raised %s: %s",
                    add_commands.__module__,
                    add_commands.__qualname__,
                    type(error).__name__,
                    error,
                )


def application() -> CommandGroup:
    """Return the command group with its global options."""

    @click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
    @click.version_option(package_name="operad", prog_name="operad")
    @click.option(
        "-c", "--config", type=click.Path(path_type=Path), help="The configuration file, for every command."
    )
    @profile_option
    def cli(config: Path | None) -> None:
        """Call operations of all kinds in one way.

        Exit codes: 0 success, 1 error (of a call, a source or a check), 2 wrong usage, 130 Ctrl-C.

        \b
        operad init                       write a configuration for this folder
        operad list                       show the operations
        operad call ID key=value          call an operation
        operad serve --http 127.0.0.1:8000
        """

    return cli
