"""The argument TARGET of `operad serve`: ``app.py``, ``app.py:name``, ``module`` or ``module:name``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from operad import ConfigError, Operation, OperationRegistry, load_plugins

_FORMS = "app.py, app.py:name, module or module:name"


def registry_of(target: str) -> OperationRegistry:
    """Import a program, and return its registry, or a new registry of its operations.

    Importing runs the program's code. As with ``python app.py``, the program can import the modules beside it.

    Args:
        target: ``app.py`` or ``module`` for the program's only `OperationRegistry` or, if it has none, for its
            functions with ``@operation`` and its function ``lifespan``. With ``:name``, the registry of that
            name, or the registry that the function of that name returns.

    Raises:
        ConfigError: the program cannot be imported, has no registry of that name, or, without a name, has several
            registries or neither a registry nor an operation.
    """
    where, colon, name = target.rpartition(":")
    if not colon or target.endswith(".py"):  # a path on Windows has a colon
        where, name = target, ""
    module = _file_module(Path(where)) if where.endswith(".py") else _named_module(where)
    if name:
        return _named(module, name, target)
    registry = _only_registry(module, where)
    return _of_operations(module, where) if registry is None else registry


def _file_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"file not found: {path}; expected {_FORMS}")
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _named_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        hint = f"; expected {_FORMS}" if missing else ""
        raise ConfigError(f'module "{name}" cannot be imported: {type(error).__name__}: {error}{hint}') from error


def _named(module: ModuleType, name: str, target: str) -> OperationRegistry:
    try:
        value: Any = getattr(module, name)
    except AttributeError:
        raise ConfigError(f'{target}: expected a registry called "{name}", but there is no such name') from None
    if callable(value) and not isinstance(value, (OperationRegistry, Operation)):
        value = value()
    if not isinstance(value, OperationRegistry):
        raise ConfigError(f"{target}: expected an OperationRegistry, got {type(value).__name__}")
    return value


def _only_registry(module: ModuleType, where: str) -> OperationRegistry | None:
    found = {id(value): name for name, value in vars(module).items() if isinstance(value, OperationRegistry)}
    if len(found) > 1:
        names = " or ".join(f"{where}:{name}" for name in found.values())
        raise ConfigError(f"{where} has {len(found)} registries; choose one: {names}")
    return getattr(module, next(iter(found.values()))) if found else None


def _of_operations(module: ModuleType, where: str) -> OperationRegistry:
    operations = {id(value): value for value in vars(module).values() if isinstance(value, Operation)}
    if not operations:
        raise ConfigError(f"{where} has no OperationRegistry and no function with @operation; add one")
    registry = OperationRegistry(load_plugins(), lifespan=getattr(module, "lifespan", None))
    for each in operations.values():
        registry.register(each)
    return registry
