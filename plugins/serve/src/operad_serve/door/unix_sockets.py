"""Listening on a Unix socket: its file is made, kept from other users, and taken away again."""

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
from operad.sources import ASGIApplication


@contextmanager
def unix_socket(path: Path, *, is_guarded: bool, option: str) -> Iterator[socket.socket]:
    """A socket that is bound to a file, whose mode is that of the umask.

    Args:
        path: the file; one that a server left behind which is no more is replaced.
        is_guarded: whether callers are authenticated; without that, only user and group of the file may come.
        option: what the path was given by, for messages.

    Raises:
        ConfigError: the socket cannot be had.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError(f"{option} unix:{path}: this system's Python has no Unix sockets")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            _free(path)
            bound.bind(str(path))
            made = path.stat()
            if not is_guarded:  # nobody can connect before the socket listens
                path.chmod(stat.S_IMODE(made.st_mode) & 0o770)
        except OSError as error:
            # One for a path of more than 107 bytes has no errno.
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(
                f"cannot listen on {path}: {reason}; name another file: {option} unix:PATH"
            ) from None
        try:
            yield bound
        finally:
            with suppress(OSError):
                if os.path.samestat(path.stat(), made):  # another server may have taken its place
                    path.unlink()


def _free(path: Path) -> None:
    """Take away what a server left behind. Raises `OSError` where one is there still, or something else is."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a server whose queue is full does not answer, but is there
        if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "")
    path.unlink()


def behind_proxy(app: ASGIApplication) -> ASGIApplication:
    """``app``, to which ``X-Forwarded-For`` and ``-Proto`` are told: who may connect is who may say so."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    told: Any = ProxyHeadersMiddleware(app, "127.0.0.1")  # type: ignore[arg-type]  # it has types of its own

    async def near(scope: Any, receive: Any, send: Any) -> None:
        await told({**scope, "client": ("127.0.0.1", 0)}, receive, send)

    return near
