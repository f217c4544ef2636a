"""Scan a folder: import its Python files, collect their operations, and report files that fail."""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from operad import Operation, OperationSpec, RegistrationError
from operad.plugin import DEFAULT_NAMESPACE, OPERATION_SPEC_SCHEMA, record
from operad_scanner.fs import LocalFS, ScannerFS

if TYPE_CHECKING:
    from operad.usage import LifespanFunction

_PACKAGE = "_operad_scanned_"
_running: ContextVar[tuple[Path, ...]] = ContextVar("operad_scanner_running", default=())
"""The files whose code is running, each imported by the one before it."""


@record
class ScanFailure:
    """A file that could not be scanned, and the exception."""

    path: Path
    error: BaseException

    def __str__(self) -> str:
        return f"{self.path}: {type(self.error).__name__}: {self.error}"


@record
class OperationManifest:
    """The result of a scan."""

    operations: tuple[Operation[..., Any], ...] = ()
    specs: tuple[OperationSpec, ...] = ()
    """Specs without a handler. Their handlers run in another process, or are registered separately."""
    failures: tuple[ScanFailure, ...] = ()
    lifespan: LifespanFunction | None = None
    """The function ``lifespan`` of the folder, or ``None`` if no file defines one."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: ``{operations: [spec, …], failures: [{path, error}, …]}``."""
        specs = [operation.spec for operation in self.operations] + list(self.specs)
        return {
            "operations": [spec.to_wire() for spec in sorted(specs, key=lambda spec: spec.id)],
            "failures": [{"path": str(f.path), "error": str(f)} for f in self.failures],
        }


def scan_operations(
    path: str | Path, fs: ScannerFS | None = None, *, namespace: str | None = None
) -> OperationManifest:
    """Import the Python files at ``path`` and return the operations that they define.

    Operations are functions with ``@operation``, `Operation` objects, `OperationSpec` objects, and mappings called
    ``spec`` or ``operation``. The handler of a spec is the module's function ``handler``; a mapping may have it as
    ``handler`` instead. One file may define ``lifespan``, a function that returns an asynchronous context manager.
    A file that fails is reported in ``failures`` of the result.

    Each file is imported under a private name, as part of a private package, so that files may import one
    another (``from .helpers import x``) and ``sys.path`` does not change. Importing runs the file's code.

    Args:
        path: a folder, or one file.
        fs: the file system; default: the local one.
        namespace: the namespace for operations that name none; ``None`` for ``local``.

    Raises:
        OSError: ``path`` does not exist.
    """
    root = Path(path).absolute()
    fs = LocalFS() if fs is None else fs
    files = sorted(fs.python_files(root))
    folder = root if root not in files else root.parent
    package = _private_package(folder)
    operations: list[Operation[..., Any]] = []
    specs: list[OperationSpec] = []
    failures: list[ScanFailure] = []
    seen: set[int] = set()
    lifespans: dict[Path, LifespanFunction] = {}
    for file in files:
        try:
            module = _import(file, folder, package, fs)
            _add_lifespan(lifespans, file, vars(module).get("lifespan"))
            for found in _collect(module, namespace):
                if id(found) not in seen:
                    seen.add(id(found))
                    (found.spec if isinstance(found, Operation) else found).require_checked_patterns()
                    (operations if isinstance(found, Operation) else specs).append(found)  # type: ignore[arg-type]  # one list each
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a module can raise anything, SystemExit included
            failures.append(ScanFailure(file, error))
    lifespan = next(iter(lifespans.values()), None)
    return OperationManifest(tuple(operations), tuple(specs), tuple(failures), lifespan)


def _private_package(folder: Path) -> str:
    """Return a fresh package whose submodules are the files of ``folder``."""
    base = name = f"{_PACKAGE}{zlib.crc32(os.fsencode(folder)):08x}"  # hashlib would bring OpenSSL along
    number = 1
    while (held := sys.modules.get(name)) is not None and held.__path__ != [str(folder)]:  # of another folder
        number += 1
        name = f"{base}_{number}"
    for loaded in [n for n in sys.modules if n == name or n.startswith(name + ".")]:
        del sys.modules[loaded]
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    return name


class _Loader(SourceFileLoader):
    """The loader of one module from a `ScannerFS`."""

    def __init__(self, name: str, path: Path, fs: ScannerFS) -> None:
        super().__init__(name, str(path))
        self._fs = fs

    def path_stats(self, path: Any) -> Any:
        """Raise `OSError`, so that Python ignores cached byte code, which may be older than the file."""
        raise OSError

    def get_data(self, path: Any) -> bytes:
        """Return the source text of the module. Raises `OSError` if it cannot be read."""
        return self._fs.read(Path(str(path)))


def _import(file: Path, folder: Path, package: str, fs: ScannerFS) -> ModuleType:
    relative = file.relative_to(folder).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    parent = package
    for part in parts[:-1]:
        parent = f"{parent}.{part}"
        if parent not in sys.modules:
            between = ModuleType(parent)
            between.__path__ = [str(folder.joinpath(*parent.split(".")[1:]))]
            sys.modules[parent] = between
    name = ".".join([package, *parts])
    if name in sys.modules:  # another file has imported it already
        return sys.modules[name]
    running = _running.get()
    if file in running:
        raise RegistrationError(
            "the file scans its own folder while it is scanned; put code that runs as a program below "
            'if __name__ == "__main__":'
        )
    spec = importlib.util.spec_from_loader(name, _Loader(name, file, fs), origin=str(file))
    assert spec is not None
    assert spec.loader is not None
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    token = _running.set((*running, file))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)  # a scan by the file's own code may have removed it
        raise
    finally:
        _running.reset(token)
    return module


def _add_lifespan(lifespans: dict[Path, LifespanFunction], file: Path, found: Any) -> None:
    if not callable(found) or isinstance(found, Operation) or found in lifespans.values():
        return
    if lifespans:
        first = next(iter(lifespans))
        raise RegistrationError(f"expected one lifespan in a folder, but {first} has one, too; remove one of them")
    lifespans[file] = found


def _collect(module: ModuleType, namespace: str | None) -> Iterator[Operation[..., Any] | OperationSpec]:
    handler = getattr(module, "handler", None)
    for name, value in list(vars(module).items()):
        if isinstance(value, Operation):
            if value.function is None or value.function.__module__ == module.__name__:
                yield _placed(value, namespace)
        elif isinstance(value, OperationSpec):
            yield _with_handler(value, handler)
        elif name in ("spec", "operation") and isinstance(value, Mapping):
            fields = {"namespace": namespace or DEFAULT_NAMESPACE, **value}
            own = (
                fields.pop("handler") if callable(fields.get("handler")) else handler
            )  # as the first scanners had it
            _check_keys(fields)
            yield _with_handler(OperationSpec.from_wire(fields), own)


def _check_keys(spec: Mapping[str, Any]) -> None:
    """Reject unknown keys of a spec: a misspelt ``accessControl`` must not open the operation."""
    known = list(OPERATION_SPEC_SCHEMA["properties"])
    for key in spec:
        if key not in known:
            # snake_case, as a Python author may write it, is near to what is meant
            from difflib import get_close_matches  # of bad files alone

            near = get_close_matches(str(key).replace("_", "").lower(), [name.lower() for name in known], 1)
            meant = [name for name in known if name.lower() in near]
            hint = f'; did you mean "{meant[0]}"?' if meant else f"; known are {', '.join(known)}"
            raise RegistrationError(f'not an operation spec: unknown key "{key}"{hint}')


def _placed(operation: Operation[..., Any], namespace: str | None) -> Operation[..., Any]:
    """Return the operation in ``namespace``, unless it has a namespace of its own."""
    if namespace is None or operation.spec.namespace != DEFAULT_NAMESPACE or namespace == DEFAULT_NAMESPACE:
        return operation
    return attrs.evolve(operation, spec=attrs.evolve(operation.spec, namespace=namespace))


def _with_handler(spec: OperationSpec, handler: Callable[..., Any] | None) -> Operation[..., Any] | OperationSpec:
    return spec if handler is None else Operation(spec, handler)
