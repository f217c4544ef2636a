"""Completion in bash, zsh and fish: commands and options by click, ids and fields from what was seen before."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from operad_cli import cache
from operad_cli.finding import find

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


def complete_id(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids that begin so."""
    return [CompletionItem(name) for name in sorted(_known(context)) if name.startswith(incomplete)]


def complete_field(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The fields of the operation's input that are not given yet, as ``key=``."""
    given = {field.partition("=")[0].rstrip(":") for field in context.params.get("fields") or ()}
    fields = _known(context).get(context.params.get("operation_id") or "", [])
    return [
        CompletionItem(f"{field}=")
        for field in fields
        if field not in given and f"{field}=".startswith(incomplete)
    ]


def _known(context: click.Context) -> dict[str, list[str]]:
    """What is known of the configuration that the command would take. Opens and starts nothing."""
    config = context.params.get("config") or context.find_root().params.get("config")
    path = find(None if config is None else str(config))
    return {} if path is None else cache.recall(path)


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
    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root()
    source = made(root.command, {}, "operad", "_OPERAD_COMPLETE").source()
    for line, instead in _MENDED.get(shell, {}).items():
        source = source.replace(line, instead)
    click.echo(f"# {_WHERE[shell]}\n{source}")
