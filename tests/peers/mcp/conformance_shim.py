"""What the suite starts as the client: hands the scenario to the test's process, which has the SDK imported already.

Usage: ``conformance_shim.py PORT URL``. Exits with the code that the test's process answers.
"""

import json
import os
import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    scenario = {
        "url": sys.argv[2],
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "version": os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
    }
    connection.sendall(json.dumps(scenario).encode() + b"\n")
    sys.exit(int(connection.makefile().readline() or 3))
