"""Configuration: operad.toml, its ``${VAR}``s, and tables made into a plugin's config objects."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

import attrs

from operad.errors import ConfigError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

CONFIG_FILE = "operad.toml"
_VARIABLE = re.compile(r"\$(\$|\{([A-Za-z_][A-Za-z0-9_]*)\})")


@attrs.frozen
class Configuration:
    """What a configuration file says, variables filled in; relative paths start from ``base_dir``."""

    base_dir: Path
    path: Path | None = None
    sources: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, repr=False)
    transport: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    plugins: Mapping[str, Any] = attrs.field(factory=dict)
    registry: Mapping[str, Any] = attrs.field(factory=dict)


def load_configuration(path: str | os.PathLike[str]) -> Configuration:
    """Read a configuration: a TOML file of its own, or ``[tool.operad]`` of a pyproject.toml; or a folder of one.

    Raises:
        ConfigError: the file is missing, is no TOML, or has an unknown table.
    """
    file = Path(path).absolute()
    if file.is_dir():
        file /= CONFIG_FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration at {path}; write an {CONFIG_FILE} or name another file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    if file.name == "pyproject.toml":
        document = document.get("tool", {}).get("operad", {})
    tables = {field.name for field in attrs.fields(Configuration)} - {"base_dir", "path"}
    for name, table in document.items():
        if name not in tables:
            raise ConfigError(f"{path}: unknown table [{name}]{_nearest(name, tables)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: [{name}] has to be a table, got {type(table).__name__}")
    for name, table in document.get("sources", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("type"), str):
            raise ConfigError(f'{path}: [sources.{name}] needs a type, such as type = "openapi"')
    return Configuration(file.parent, file, **document)


def expand_variables(value: Any, where: str) -> Any:
    """``value`` with each ``${NAME}`` in its strings taken from the environment; ``$$`` stands for ``$``.

    Raises:
        ConfigError: a variable is not set; the message names it and the key that wants it.
    """
    if isinstance(value, str):

        def replace(match: re.Match[str]) -> str:
            if match[1] == "$":
                return "$"
            try:
                return os.environ[match[2]]
            except KeyError:
                raise ConfigError(
                    f"{where} wants the environment variable {match[2]}, which is not set; set it, "
                    "or write the value itself"
                ) from None

        return _VARIABLE.sub(replace, value)
    if isinstance(value, Mapping):
        return {key: expand_variables(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [expand_variables(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return value


def structure(config_type: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the attrs class ``config_type`` with the values of ``table``.

    Values of the right type already (an attrs object, a callable) are taken as they are.

    Raises:
        ConfigError: an unknown key (the message names the nearest known one), a missing key, or a value of
            another type; the message never quotes a value, which may be a secret.
    """
    from cattrs import transform_error

    try:
        return _converter().structure(table, config_type)
    except Exception as error:
        messages = transform_error(error, path=where, format_exception=_format)
        raise ConfigError("; ".join(messages)) from error


def _format(error: BaseException, type_: type[Any] | None) -> str:
    if isinstance(error, KeyError):
        return f"missing key {error}"
    return str(error)


def _nearest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; known: {', '.join(sorted(known))}"


@lru_cache(maxsize=1)
def _converter() -> Converter:
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn

    converter = Converter()

    def exactly(expected: type[Any], *also: type[Any]) -> Callable[[Any, Any], Any]:
        def take(value: Any, _: Any) -> Any:
            if isinstance(value, bool) and expected is not bool:
                raise TypeError(f"expected {expected.__name__}, got bool")
            if not isinstance(value, (expected, *also)):
                raise TypeError(f"expected {expected.__name__}, got {type(value).__name__}")
            return expected(value) if also else value

        return take

    def attrs_object(cls: type[Any]) -> Callable[[Any, Any], Any]:
        make: Any = make_dict_structure_fn(cls, converter)
        known = {field.alias for field in attrs.fields(cls) if field.init and field.alias is not None}

        def take(value: Any, _: Any) -> Any:
            if isinstance(value, cls):
                return value
            if not isinstance(value, Mapping):
                raise TypeError(f"expected a table, got {type(value).__name__}")
            for key in value:
                if key not in known:
                    raise ValueError(f'unknown key "{key}"{_nearest(str(key), known)}')
            return make(value, cls)

        return take

    def union(hint: Any) -> Callable[[Any, Any], Any]:
        members = get_args(hint)

        def take(value: Any, _: Any) -> Any:
            for member in members:
                if member is Any or (isinstance(member, type) and isinstance(value, member)):
                    return value
            errors = []
            for member in members:
                try:
                    return converter.structure(value, member)
                except Exception as error:  # noqa: BLE001  # the next member may take it
                    errors.append(error)
            tables = [e for m, e in zip(members, errors, strict=True) if attrs.has(get_origin(m) or m)]
            if tables and isinstance(value, Mapping):
                raise tables[0]
            names = ", ".join(getattr(member, "__name__", str(member)) for member in members)
            raise TypeError(f"expected one of {names}, got {type(value).__name__}")

        return take

    for plain in (str, bool, int):
        converter.register_structure_hook(plain, exactly(plain))
    converter.register_structure_hook(float, exactly(float, int))
    converter.register_structure_hook(Path, lambda value, _: Path(exactly(str, Path)(str(value), _)))
    converter.register_structure_hook_func(_is_opaque, lambda value, _: value)
    converter.register_structure_hook_factory(_is_union, union)
    converter.register_structure_hook_factory(attrs.has, attrs_object)
    return converter


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _is_opaque(hint: Any) -> bool:
    """Types of which a configuration in Python passes instances: callables, and classes cattrs knows nothing of."""
    origin = get_origin(hint) or hint
    if origin is Callable or getattr(origin, "__name__", "") == "Callable":
        return True
    module = getattr(origin, "__module__", "")
    return isinstance(origin, type) and not attrs.has(origin) and module.partition(".")[0] not in _STRUCTURED


_STRUCTURED = frozenset(
    {"builtins", "collections", "enum", "pathlib", "datetime", "types", "typing", "uuid", "operad"}
)
