"""The command ``operad doctor``, which checks the installation and the configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from operad_cli.options import Seconds, config_option, find_configuration, output_options, run

_MARKS = {"ok": ("ok   ", "green"), "warning": ("warn ", "yellow"), "error": ("error", "red")}
_INDENT = " " * 6


@click.command()
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=1),
    default=20.0,
    show_default=True,
    help="Time limit for each source.",
)
@config_option
@output_options
def doctor(timeout: float, config: Path | None, as_json: bool) -> int:
    """Check the installation and the configuration.

    It checks plugins, the tables of the configuration, every source (each is opened), the schemas of operations,
    transport and clock, and shows how to fix errors. The exit code is 1 if there is an error.

    \b
    operad doctor
    operad -c other.toml doctor --json
    """
    from operad_cli.output.progress import Line
    from operad_cli.output.text import paragraph, print_json, print_text, printable, styled
    from operad_cli.running.checks import examine

    with Line() as line:
        if sys.stderr.isatty():
            line.show("checking plugins and sources …")
        found = run(examine(find_configuration(config), timeout))
    if as_json:
        print_json([check.to_json() for check in found])
    else:
        for check in found:
            mark, style = _MARKS[check.status]
            text = paragraph(f"{mark} {printable(f'{check.what}  {check.message}')}", indent=_INDENT)
            what = text[len(_INDENT) : len(_INDENT) + len(check.what)]
            print_text(f"{styled(mark, style)} {styled(what, 'bold')}{text[len(_INDENT) + len(what) :]}")
            if check.fix:
                print_text(styled(paragraph(_INDENT + printable(check.fix), indent=_INDENT), "dim"))
    return int(any(check.status == "error" for check in found))
