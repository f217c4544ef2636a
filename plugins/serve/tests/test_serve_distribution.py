"""operad-serve as a distribution, against the conformance kit."""

from __future__ import annotations

import os
import subprocess
import sys

from operad_testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-serve"
    contributes = {"hooks": ["operad_commands"], "servers": ["openapi"]}


def test_the_command_line_names_the_distribution_where_it_is_not_loaded() -> None:
    command = [sys.executable, "-m", "operad_cli.main", "serve", "--http", "127.0.0.1:0"]
    without = {**os.environ, "OPERAD_DISABLE_PLUGINS": "serve"}
    done = subprocess.run(command, env=without, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install operad-serve" in " ".join(done.stderr.split())


def test_importing_the_plugin_imports_no_server() -> None:
    program = "import sys, operad_serve.plugin; print(sorted({'uvicorn', 'click', 'jsonschema_rs'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
