"""Read YAML as values of JSON, within limits and with the speed of libyaml.

Values follow the core schema of YAML 1.2 (no yes/no/on/off, no dates, no base 60). Keys are always text, so that
``200:`` and ``no:`` are the keys "200" and "no". The tree is built from libyaml's events in one loop, without
recursion, and no tag can create a Python object.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_DEPTH = 500
MAX_NODES = 5_000_000
"""The maximum number of nodes with aliases expanded, against a "billion laughs" attack."""
MAX_REPEATED = 100

_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASED_INT = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_CONSTANTS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMERIC = frozenset("+-.0123456789")


class YAMLError(ValueError):
    """The error for a text that is not YAML or exceeds a limit; the message states where."""


def load_yaml(data: bytes | str, repeated: list[str] | None = None) -> Any:
    """Return the value of the first YAML document in ``data``, or ``None`` if ``data`` is empty.

    If a mapping has a key twice, the last value is used, and the key is added to ``repeated`` (at most 100 keys).
    Raises `YAMLError` if the text is not YAML, or exceeds `MAX_DEPTH` or `MAX_NODES`.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _build(yaml.parse(data, Loader=loader), [] if repeated is None else repeated)
    except yaml.YAMLError as error:
        raise YAMLError(" ".join(str(error).split())) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise YAMLError(f"{type(error).__name__}: {error}") from error


class _Frame:
    """A collection being read."""

    __slots__ = ("anchor", "is_key", "key", "merges", "node", "weight")

    def __init__(self, node: Any, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: str | None = None
        self.is_key = isinstance(node, dict)  # whether a mapping's next node is a key
        self.merges: list[Any] = []
        self.weight = 1


def _build(events: Any, repeated: list[str]) -> Any:
    frames: list[_Frame] = []
    anchors: dict[str, tuple[Any, int]] = {}
    for event in events:
        weight = 1
        if isinstance(event, yaml.ScalarEvent):
            if frames and frames[-1].is_key and event.anchor is None:
                frames[-1].key, frames[-1].is_key = event.value, False
                continue
            node = _scalar(event)
            if event.anchor is not None:
                anchors[event.anchor] = (node, 1)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if frames and frames[-1].is_key:
                raise YAMLError(f"expected text as a key, got a collection at {_place(event)}")
            if len(frames) >= MAX_DEPTH:
                raise YAMLError(f"expected at most {MAX_DEPTH} levels, got more at {_place(event)}")
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            frames.append(_Frame({} if is_mapping else [], event.anchor))
            continue
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            node, weight = _finish(frames.pop(), anchors)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise YAMLError(f'alias "{event.anchor}" at {_place(event)} has no complete anchor before it')
            node, weight = anchors[event.anchor]
        elif isinstance(event, yaml.DocumentEndEvent):
            break
        else:
            continue
        if not frames:
            return node
        _add(frames[-1], node, weight, event, repeated)
    return None


def _finish(frame: _Frame, anchors: dict[str, tuple[Any, int]]) -> tuple[Any, int]:
    for merged in frame.merges:
        for key, item in merged.items():
            frame.node.setdefault(key, item)
    if frame.anchor is not None:
        anchors[frame.anchor] = (frame.node, frame.weight)
    return frame.node, frame.weight


def _add(frame: _Frame, node: Any, weight: int, event: Any, repeated: list[str]) -> None:
    frame.weight += weight
    if frame.weight > MAX_NODES:
        raise YAMLError(f"expected at most {MAX_NODES} nodes with aliases expanded, got more at {_place(event)}")
    if isinstance(frame.node, list):
        frame.node.append(node)
    elif frame.is_key:  # a key that is an alias, or has an anchor
        frame.key, frame.is_key = str(node), False
    else:
        key, frame.key, frame.is_key = frame.key, None, True
        if key == "<<" and isinstance(node, (dict, list)):
            frame.merges += [node] if isinstance(node, dict) else [n for n in node if isinstance(n, dict)]
        else:
            if key in frame.node and len(repeated) < MAX_REPEATED:
                repeated.append(f'"{key}" before {_place(event)}')
            frame.node[key] = node


def _scalar(event: Any) -> Any:
    value: str = event.value
    if not event.implicit[0] or event.style not in (None, ""):
        if event.tag in (None, "!", "tag:yaml.org,2002:str") or event.style not in (None, ""):
            return value
        if not str(event.tag).startswith("tag:yaml.org,2002:"):
            return value
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    if value[0] in _NUMERIC and len(value) < 400:
        if _INT.match(value):
            return int(value)
        if _BASED_INT.match(value):
            return int(value, 0)
        if _FLOAT.match(value):
            return float(value)
    return value


def _place(event: Any) -> str:
    mark = event.start_mark
    return f"line {mark.line + 1}, column {mark.column + 1}"
