"""``operad completion``: the scripts of shells."""

from __future__ import annotations

import click

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
