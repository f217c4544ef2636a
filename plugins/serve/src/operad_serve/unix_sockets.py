"""Unix sockets to listen on. If callers are not authenticated, only the file's user and group can connect."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from operad import ConfigError
from operad_serve.asgi import ASGIApplication, Receive, Scope, Send


@contextmanager
def unix_socket(path: Path, *, is_guarded: bool) -> Iterator[socket.socket]:
    """Bind a Unix socket to a file, and yield it. Close the socket and remove the file on exit.

    Args:
        path: the file. A socket that an ended server left behind is replaced.
        is_guarded: whether callers are authenticated. If so, the umask decides which users may connect; if not,
            at most the file's user and group.

    Raises:
        ConfigError: the system has no Unix sockets, the file cannot be created, is not a socket, or belongs to a
            server that runs.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError(f"cannot listen on unix:{path}: this system has no Unix sockets; use HOST:PORT")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            _free(path)
            bound.bind(str(path))
            made = path.stat()
            if not is_guarded:  # before the socket listens, no client can connect
                path.chmod(stat.S_IMODE(made.st_mode) & 0o770)
        except OSError as error:
            # The error for a path of more than 107 bytes has no errno.
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"cannot listen on {path}: {reason}; choose another file") from None
        try:
            yield bound
        finally:
            with suppress(OSError):
                if os.path.samestat(path.stat(), made):  # not the file of another server that replaced it
                    path.unlink()


def _free(path: Path) -> None:
    """Remove the socket of an ended server. Raises `OSError` if the server runs, or the file is not a socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a server whose queue is full refuses the probe, but runs
        if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "")
    path.unlink()


def behind_proxy(app: ASGIApplication) -> ASGIApplication:
    """Wrap an application on a Unix socket so that it trusts ``X-Forwarded-For`` and ``-Proto`` of all clients.

    The permissions of the socket's file decide which clients may connect.
    """
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    proxied: Any = ProxyHeadersMiddleware(app, "127.0.0.1")  # type: ignore[arg-type]  # it has types of its own

    async def near(scope: Scope, receive: Receive, send: Send) -> None:
        await proxied({**scope, "client": ("127.0.0.1", 0)}, receive, send)

    return near
