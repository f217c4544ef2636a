"""A group of commands of which each module is imported when its command is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that knows where some of its commands are.

    Args:
        later: ``module:attribute`` by the command's name.
        elsewhere: the distribution that brings a command, by its name.
    """

    def __init__(
        self,
        *args: Any,
        later: Mapping[str, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._later = dict(later or {})
        self._elsewhere = dict(elsewhere or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, its module imported now."""
        if cmd_name in self._later and cmd_name not in self.commands:
            module, _, name = self._later[cmd_name].partition(":")
            command: click.Command = getattr(import_module(module), name)
            self.add_command(command, cmd_name)
        found = super().get_command(ctx, cmd_name)
        if found is not None and found.short_help is None and found.help:
            # The whole first sentence: shells that complete would be given its beginning.
            found.short_help = " ".join(found.help.partition("\n\n")[0].split())
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a command that is not here because its distribution is not is told with that."""
        name = args[0] if args else ""
        if name in self._elsewhere and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            brings = self._elsewhere[name]
            raise click.UsageError(
                f"the command {name} comes with {brings}, which is not loaded here; install it: pip install "
                f"{brings}, or see `operad plugins`",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def knows(self, name: str) -> bool:
        """Whether a command is the group's own, without a plugin."""
        return name in self._later or name in self.commands
