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
    """

    def __init__(self, *args: Any, later: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._later = dict(later or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, its module imported now."""
        if cmd_name in self._later and cmd_name not in self.commands:
            module, _, name = self._later[cmd_name].partition(":")
            command: click.Command = getattr(import_module(module), name)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def knows(self, name: str) -> bool:
        """Whether a command is the group's own, without a plugin."""
        return name in self._later or name in self.commands
