"""Tables of a configuration made into attrs classes: strictly, and without quoting a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from operad.errors import ConfigError

T = TypeVar("T")


def structure(config_type: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the attrs class ``config_type`` with the values of ``table``.

    Values of the right type already (an attrs object, a callable) are taken as they are.

    Raises:
        ConfigError: an unknown key (the message names the nearest known one), a missing key, or a value of
            another type; the message never quotes a value, which may be a secret.
    """
    if (plain := _plain(config_type, table)) is not None:
        return plain
    from cattrs import transform_error  # a third of the start of a command that needs nothing of it

    from operad.config.converting import config_converter, formatter

    try:
        return config_converter().structure(table, config_type)
    except Exception as error:  # noqa: BLE001  # cattrs raises groups of many types
        messages = transform_error(error, path=where, format_exception=formatter(table))
        # Not chained: cattrs' errors hold the values.
        raise ConfigError("; ".join(messages)) from None


_PLAIN = frozenset({"str", "bool", "int", "float"})


def _plain(config_type: type[T], table: Mapping[str, Any]) -> T | None:
    """What needs no conversion: each value is a text, a truth or a number, and of a type that its field names.

    ``None`` leaves it to the converter, which also has the words for what is wrong.
    """
    if not attrs.has(config_type) or not isinstance(table, Mapping):
        return None
    types = {field.alias: field.type for field in attrs.fields(config_type) if field.init}
    for key, value in table.items():
        kind = type(value).__name__
        if kind not in _PLAIN or kind not in _alternatives(types.get(key)):
            return None
    try:
        plain: Any = config_type(**table)  # attrs.has has made it an AttrsInstance
        return plain  # type: ignore[no-any-return]  # it is one of config_type
    except Exception:  # noqa: BLE001  # a key is missing, or a validator's complaint, which may quote the value
        return None


def _alternatives(hint: Any) -> list[str]:
    """The names of the types of a field, without parameters: ``dict[str, int] | str`` -> ``dict``, ``str``."""
    if not isinstance(hint, str):  # as it is written: `from __future__ import annotations` leaves texts
        return [] if "[" in str(hint) else [getattr(hint, "__name__", "")]
    while (outer := _PARAMETERS.sub("", hint)) != hint:
        hint = outer
    return [] if set(hint) & set("[]\"'") else hint.split(" | ")


_PARAMETERS = re.compile(r"\[[^\[\]\"']*\]")
