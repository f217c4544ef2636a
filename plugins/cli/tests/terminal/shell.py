"""A shell for replaying transcripts: reads lines, and runs `operad` in a child that has the terminal.

The child is a fork of this process, which has imported what the commands import: what a command shows is looked at
here, not how long its imports take.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys

import click

import operad_cli.demo.steps
import operad_cli.running.terminal  # noqa: F401  # commands import these when they run
from operad import load_plugins
from operad_cli.app import application
from operad_cli.main import main


def run(words: list[str]) -> int:
    """Run one command line; its exit code, as a shell counts."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            os.environ[name] = value
        if words[0] != "operad":
            os.execvp(words[0], words)
        sys.argv = words
        main()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    for kind in ("openapi", "mcp", "scanner"):
        load_plugins().source(kind)
    commands = application()
    context = click.Context(commands)
    for command in commands.list_commands(context):
        commands.get_command(context, command)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        print("$ ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            break
        if line.strip() and (code := run(shlex.split(line))):
            print(f"[exit {code}]")
