"""The command ``operad demo``, which shows calls of three kinds of sources."""

from __future__ import annotations

import click

from operad_cli.options import output_options, run


@click.command()
@click.option("--keep", is_flag=True, help="Keep the API running until Ctrl-C.")
@output_options
def demo(keep: bool, as_json: bool) -> int:
    """Show in a few seconds what operad does.

    It calls an HTTP API, an MCP server and a folder of functions in the same way.
    """
    from operad_cli.demo.steps import run_demo

    return run(run_demo(keep=keep, as_json=as_json))
