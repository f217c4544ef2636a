"""The certificates that the system trusts, read before the first TLS connection instead of as aiohttp is imported.

aiohttp makes two contexts as it is imported, and each reads all certificates of the system: 27 ms with OpenSSL 3.
A short command needs none of them where it speaks plain HTTP, else one. What is here makes these two contexts read
them when they are used first. Until then they trust nobody: whatever came past what is here would refuse every
server, not accept one.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_Context = ssl.SSLContext
_reading = threading.Lock()
_importing = threading.RLock()
_NAME = "set_default_verify_paths"


class LateContext(_Context):
    """A context that reads the certificates of the system when it is used first, and is an ordinary one then.

    One that verifies nobody never reads them.
    """

    def read(self) -> None:
        """Read them, where they are to be verified against; idempotent, from any thread."""
        with _reading:  # whoever comes second waits until they are read
            if self.verify_mode != ssl.CERT_NONE and isinstance(self, LateContext):
                self.load_default_certs()
                self.__class__ = _Context  # type: ignore[assignment]  # its own base; mypy knows of no way back

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """As of `ssl.SSLContext`; asyncio begins every TLS connection by this."""
        self.read()
        return _Context.wrap_bio(self, *args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """As of `ssl.SSLContext`."""
        self.read()
        return _Context.wrap_socket(self, *args, **options)

    def cert_store_stats(self) -> dict[str, int]:
        """As of `ssl.SSLContext`."""
        self.read()
        return _Context.cert_store_stats(self)

    def get_ca_certs(self, binary_form: bool = False) -> Any:
        """As of `ssl.SSLContext`."""
        self.read()
        return _Context.get_ca_certs(self, binary_form)


@contextmanager
def read_late() -> Iterator[None]:
    """Within, what aiohttp's connector makes as it is imported are `LateContext`, in this thread and others.

    Nothing is changed for anybody else, nor where somebody has put another class in the place of `ssl.SSLContext`.
    """
    with _importing:
        is_known = ssl.SSLContext is _Context and _Context.__module__ == "ssl"
        if "aiohttp.connector" in sys.modules or not is_known or _NAME in vars(_Context):
            yield
            return

        def set_default_verify_paths(context: ssl.SSLContext) -> None:
            if type(context) is _Context and _is_aiohttp(inspect.currentframe()):
                context.__class__ = LateContext
            else:
                super(_Context, context).set_default_verify_paths()

        setattr(_Context, _NAME, set_default_verify_paths)  # in front of the inherited one
        try:
            yield
        finally:
            delattr(_Context, _NAME)


def _is_aiohttp(frame: FrameType | None) -> bool:
    """Whether aiohttp's connector has asked: by itself, or by way of the functions of ``ssl``."""
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "ssl"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "aiohttp.connector"


def read_ahead(loop: asyncio.AbstractEventLoop) -> None:
    """Begin to read them in a thread, while a name is resolved and a connection is made."""
    context = getattr(sys.modules.get("aiohttp.connector"), "_SSL_CONTEXT_VERIFIED", None)
    if isinstance(context, LateContext):
        loop.run_in_executor(None, context.read)
