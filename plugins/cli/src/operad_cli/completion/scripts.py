"""The command ``operad completion``, with completion scripts for bash, zsh and fish."""

from __future__ import annotations

import click

_WHERE = {
    "bash": "operad completion bash > ~/.local/share/bash-completion/completions/operad",
    "zsh": 'operad completion zsh > "${fpath[1]}/_operad"',
    "fish": "operad completion fish > ~/.config/fish/completions/operad.fish",
}


# A value follows ``field=``, but the scripts of click for bash and zsh add a space. The script for fish cuts help
# texts at the first comma.
_CORRECTIONS = {
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

    The script completes commands, options, ids of operations and fields of their inputs. It knows the ids and
    fields that `operad list` and other commands saw last; completion starts no source.

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
    for line, instead in _CORRECTIONS.get(shell, {}).items():
        source = source.replace(line, instead)
    click.echo(f"# {_WHERE[shell]}\n{source}")
