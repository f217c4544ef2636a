"""The SDK's client, without what its packages import besides.

`mcp` and `mcp.client` re-export names of the whole SDK: its servers come along, and starlette and uvicorn with
them, a third of the time that a first connection takes to import. A client needs none of that. So the two stand in
`sys.modules` as packages whose ``__init__`` has not run yet: it runs, in full, the moment that anybody looks at a
name that they have from there. The SDK's own modules import each other by their full names, so the order does not
matter to them.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import threading
from concurrent.futures import Future
from types import ModuleType
from typing import Any

_PACKAGES = ("mcp", "mcp.client")
_LOCK = threading.RLock()
_RUNNING = "__operad_running__"
_importing: dict[str, Future[ModuleType]] = {}


class _Deferred(ModuleType):
    """A package whose ``__init__`` has not run."""

    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            # The same thread comes here again while the package runs, and finds it half made, as in any circle.
            if type(self) is _Deferred and _RUNNING not in self.__dict__:
                self.__dict__[_RUNNING] = True
                try:
                    self.__dict__["__spec__"].loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]  # what it is from now on
                finally:
                    del self.__dict__[_RUNNING]
        return ModuleType.__getattribute__(self, name)  # which says in the usual words what is missing


async def imported_with_sdk(name: str) -> ModuleType:
    """Import a module of this distribution that needs the SDK's client, while other servers and calls go on.

    All who wait for it wait for one thread, which is not of the loop's own few.

    Args:
        name: of the module.

    Raises:
        ImportError: the SDK is missing, or another version than this distribution can use.
    """
    with _LOCK:
        importing = _importing.get(name)
        if importing is None or (importing.done() and importing.exception() is not None):
            importing = _importing[name] = Future()
            importing.set_running_or_notify_cancel()  # it goes on when one of those who wait leaves
            threading.Thread(target=_import, args=(name, importing), name="operad-mcp import", daemon=True).start()
    return importing.result() if importing.done() else await asyncio.wrap_future(importing)


def _import(name: str, importing: Future[ModuleType]) -> None:
    try:
        with _LOCK:
            if "mcp" not in sys.modules:
                _prepare()
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001  # whoever waits for it raises it
        importing.set_exception(error)
    else:
        importing.set_result(module)


def _prepare() -> None:
    """Import the client alone. Where that does not work nothing is left, and the import itself says why."""
    before = set(sys.modules)
    try:
        for package in _PACKAGES:
            _defer(package)
        _build_when_used()
        importlib.import_module("mcp.client.session")
    except Exception:  # noqa: BLE001  # a broken installation may raise anything
        for module in set(sys.modules) - before:
            if module.partition(".")[0] == "mcp":
                del sys.modules[module]


def _build_when_used() -> None:
    """Have the validators of the protocol's messages built when they are used, of both generations of it: pydantic
    builds some 300 of them at import, and a connection uses a dozen."""
    try:
        base: Any = importlib.import_module("mcp_types._wire_base").WireModel
    except (ImportError, AttributeError):  # not public: another version may have none
        return
    base.model_config = {**base.model_config, "defer_build": True}


def _defer(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Deferred
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
