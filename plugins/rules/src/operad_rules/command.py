"""The command ``operad rules``. operad-cli imports it when it collects the commands of plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from operad_cli.options import config_option, output_options


@click.command()
@click.option("--explain", metavar="ID", help="Show the rules that match this operation, from the outside in.")
@config_option
@output_options
def rules(explain: str | None, config: Path | None, as_json: bool) -> int:
    """List all rules, or the rules that match one operation.

    \b
    operad rules
    operad rules --explain github.issues/create
    """
    from operad.config import load_configuration
    from operad_cli.options import chosen_profile, require_configuration
    from operad_cli.output.text import print_json, print_text, printable
    from operad_rules.rule import Rule
    from operad_rules.rules import explained, keys

    configuration = load_configuration(require_configuration(config), chosen_profile())
    written = configuration.array("rules", Rule)
    found: list[dict[str, Any]] = (
        [{"rule": n, "match": list(rule.patterns), "keys": keys(rule)} for n, rule in enumerate(written, 1)]
        if explain is None
        else explained(written, explain)
    )
    if as_json:
        print_json(found)
        return 0
    if not found:
        print_text("No rules." if explain is None else f'No rule matches "{printable(explain)}".')
    for rule in found:
        print_text(printable(f"[[rules]] {rule['rule']}: match {', '.join(rule['match'])}"))
        for key, value in rule["keys"].items():
            print_text(printable(f"  {key} = {value if isinstance(value, str) else json.dumps(value)}"))
    return 0
