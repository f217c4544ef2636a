"""What npm and uv install in this folder, and the marks of tests that need it."""

from pathlib import Path

import pytest

from tests.kit import marked

HERE = Path(__file__).parent
NODE = HERE / "node_modules/node/bin/node"
NPM = HERE / "node_modules/@modelcontextprotocol"
SDK = NPM / "sdk/dist/esm/examples/server"
SUITE = NPM / "conformance/dist/index.js"
EVERYTHING = NPM / "server-everything/dist/index.js"
PYTHON = HERE / ".venv/bin/python"

needs_npm = [
    pytest.mark.node,
    pytest.mark.skipif(not SUITE.exists() or not NODE.exists(), reason="npm install in tests/peers/mcp"),
]
in_node = marked(*needs_npm)
needs_python = pytest.mark.skipif(not PYTHON.exists(), reason="make tests/peers/mcp/.venv with requirements.txt")
