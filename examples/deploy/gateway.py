"""A WebSocket hub in front of the workers on NATS. Clients with the token can call the operations of the workers.

Settings come from the environment: OPERAD_TRANSPORT (the URL of the broker), OPERAD_HUB_HOST and OPERAD_HUB_PORT
(the address of the hub), OPERAD_HUB_TOKEN (the token that clients send as ``Authorization: Bearer …``).
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from typing import Any

from operad import CallHandler, Identity, Operation, OperationRegistry, from_remote, load_plugins
from operad_auth.http import tell_manager, until_stopped
from operad_websocket import Hub, WebSocketTransport, bearer_tokens


async def main() -> None:
    """Run until a signal arrives. A second signal stops the hub without waiting for running calls."""
    with until_stopped() as stopped:
        await run(stopped)


async def run(stopped: asyncio.Event) -> None:
    """Run a hub that offers the operations of the workers."""
    own = secrets.token_urlsafe(32)
    authenticate = bearer_tokens({os.environ["OPERAD_HUB_TOKEN"]: Identity("client"), own: Identity("gateway")})
    host, port = os.environ.get("OPERAD_HUB_HOST", "127.0.0.1"), int(os.environ.get("OPERAD_HUB_PORT", "8765"))
    workers = load_plugins().transport(os.environ["OPERAD_TRANSPORT"])
    registry = OperationRegistry()

    def may_serve(identity: Identity | None, address: str) -> bool:
        """Allow only this gateway to serve, so that no client can pose as a worker."""
        return identity is not None and identity.id == "gateway"

    def follow(operations: Sequence[Operation[..., Any]]) -> None:
        """Replace the offered operations by the current ones of the workers."""
        current = {operation.id: operation for operation in operations}
        for spec in list(registry.specs()):
            if spec.id not in current:
                registry.unregister(spec.id)
        for operation in current.values():
            registry.register(operation, replace=True)

    async with (
        Hub(authenticate, host, port, authorize=may_serve) as hub,
        await from_remote(workers) as session,
        registry,
    ):
        session.on_change(follow)
        follow(session.operations)
        transport = WebSocketTransport(f"ws://127.0.0.1:{port}", token=own)
        async with CallHandler(registry, transport, reexport=True):
            print(f"hub on {hub.url}", flush=True)
            tell_manager("READY=1")
            await stopped.wait()
            tell_manager("STOPPING=1")
            await hub.drain(10)


if __name__ == "__main__":
    asyncio.run(main())
