"""Convert tables of a configuration to attrs classes, strictly and without quoting a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from operad.config.places import exactly
from operad.errors import ConfigError

T = TypeVar("T")


def structure(config_type: type[T], table: Mapping[str, Any], where: str) -> T:
    """Return an instance of the attrs class ``config_type`` with the values of ``table``.

    Values that already have the right type (an attrs object, a callable) are used unchanged.

    Raises:
        ConfigError: an unknown key (the message names the nearest known key), a missing key, or a value of the
            wrong type. The message names ``where`` and quotes no value, because it may be a secret.
    """
    if (plain := _plain(config_type, table)) is not None:
        return plain
    from cattrs import transform_error  # slow to import: a third of a short command's start

    from operad.config.converting import CONVERTER, formatter

    try:
        return CONVERTER.structure(table, config_type)
    except Exception as error:  # noqa: BLE001  # cattrs raises groups of many types
        messages = transform_error(error, path=where, format_exception=formatter(table))
        # Not chained: cattrs' errors hold the values.
        raise ConfigError(exactly(where, "; ".join(messages))) from None


_PLAIN = frozenset({"str", "bool", "int", "float"})


def _plain(config_type: type[T], table: Mapping[str, Any]) -> T | None:
    """Return the instance if no value needs a conversion; ``None`` if the converter must handle the table.

    A value needs none if it is a string, a boolean, a number, or a list or table of strings, and of a type that
    its field names. The converter also makes the messages for invalid values.
    """
    if not attrs.has(config_type) or not isinstance(table, Mapping):
        return None
    types = {field.alias: field.type for field in attrs.fields(config_type) if field.init}
    if not all(_kind(value) in _alternatives(types.get(key)) for key, value in table.items()):
        return None
    values = {key: value.copy() if isinstance(value, (list, dict)) else value for key, value in table.items()}
    try:
        plain: Any = config_type(**values)  # attrs.has has made it an AttrsInstance
        return plain  # type: ignore[no-any-return]  # it is one of config_type
    except Exception:  # noqa: BLE001  # a key is missing, or a validator's complaint, which may quote the value
        return None


def _kind(value: Any) -> str | None:
    """Return the name of a value's plain type, as in `_alternatives`; ``None`` for any other type."""
    if type(value) is list:
        return _TEXTS["list[str]"] if all(type(item) is str for item in value) else None
    if type(value) is dict:
        return (
            _TEXTS["dict[str, str]"] if all(type(part) is str for item in value.items() for part in item) else None
        )
    return kind if (kind := type(value).__name__) in _PLAIN else None


def _alternatives(hint: Any) -> list[str]:
    """Return the names of a field's types, without parameters: ``dict[str, int] | str`` -> ``dict``, ``str``."""
    if not isinstance(hint, str):  # else as it is written: `from __future__ import annotations` leaves texts
        hint = (hint.__name__ if hint.__module__ == "builtins" else "") if isinstance(hint, type) else str(hint)
    for texts, name in _TEXTS.items():
        hint = hint.replace(texts, name)
    while (outer := _PARAMETERS.sub("", hint)) != hint:
        hint = outer
    return [] if set(hint) & set("[]\"'") else hint.split(" | ")


_PARAMETERS = re.compile(r"\[[^\[\]\"']*\]")
_TEXTS = {"list[str]": "texts", "dict[str, str]": "table of texts"}
