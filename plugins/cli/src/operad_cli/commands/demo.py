"""``operad demo``."""

from __future__ import annotations

import click

from operad_cli.options import output_options, run


@click.command()
@click.option("--keep", is_flag=True, help="Leave the API up afterwards, until Ctrl-C.")
@output_options
def demo(keep: bool, as_json: bool) -> int:
    """Show what operad is for, in seconds.

    An HTTP API, an MCP server and a folder of functions are called one way.
    """
    from operad_cli.demo.steps import run_demo

    return run(run_demo(keep=keep, as_json=as_json))
