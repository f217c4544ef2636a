"""Completion in bash, zsh and fish: commands and options by click, ids and fields from what was seen before."""

from __future__ import annotations

import click

from operad_cli import cache
from operad_cli.options import find_configuration

_WHERE = {
    "bash": "operad completion bash > ~/.local/share/bash-completion/completions/operad",
    "zsh": 'operad completion zsh > "${fpath[1]}/_operad"',
    "fish": "operad completion fish > ~/.config/fish/completions/operad.fish",
}


# After ``field=`` comes its value: click's scripts would put a space there. fish sees that by itself; there they
# cut what a command does at its first comma.
_MENDED = {
    "fish": {'(string split "," $completion)': '(string split -m 1 "," $completion)'},
    "bash": {
        "    return 0\n": "    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null\n    return 0\n",
    },
    "zsh": {
        "        compadd -U -V unsorted -a completions\n": (
            "        local -a glued=()\n"
            '        [[ "${completions[1]}" == *= ]] && glued=(-S "")\n'
            '        compadd "${glued[@]}" -U -V unsorted -a completions\n'
        ),
    },
}


def complete_id(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids that begin with the given text."""
    return [name for name in sorted(_known(context)) if name.startswith(incomplete) and _is_harmless(name)]


def complete_field(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the fields of the operation's input that are not given yet, as ``key=``."""
    given = {field.partition("=")[0].partition("@")[0].rstrip(":") for field in context.params.get("fields") or ()}
    return [
        f"{field}="
        for field in _known(context).get(context.params.get("operation_id") or "", [])
        if field not in given and f"{field}=".startswith(incomplete) and _is_harmless(field)
    ]


def _known(context: click.Context) -> dict[str, list[str]]:
    """Return the fields by id, as remembered for the command's configuration. Starts nothing."""
    path = find_configuration(context.params.get("config") or context.find_root().params.get("config"))
    return {} if path is None else cache.recall(str(path))


def _is_harmless(name: str) -> bool:
    """Whether a shell reads this name, which a source chose, as one plain word."""
    return name.isprintable() and not set(name) & set(" `$;&|<>()\"'\\!")


@click.command()
@click.argument("shell", type=click.Choice(sorted(_WHERE)))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, ids of operations and fields of their inputs. Ids and fields are those that
    `operad list` and other commands saw last: nothing is started to complete a word.

    \b
    operad completion bash > ~/.local/share/bash-completion/completions/operad
    operad completion zsh > "${fpath[1]}/_operad"
    operad completion fish > ~/.config/fish/completions/operad.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root()
    source = made(root.command, {}, "operad", "_OPERAD_COMPLETE").source()
    for line, instead in _MENDED.get(shell, {}).items():
        source = source.replace(line, instead)
    click.echo(f"# {_WHERE[shell]}\n{source}")
