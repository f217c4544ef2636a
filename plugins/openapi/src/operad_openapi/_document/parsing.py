"""Parse a document as JSON if possible, else as YAML."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from operad import SourceError
from operad_openapi._collecting import building

logger = logging.getLogger("operad.openapi")

ASIDE_BYTES = 256 * 1024
"""A document of at least this size is parsed and listed in a thread, to keep the event loop free for calls."""
_EXCERPT = 60


def parse(data: bytes, where: str) -> Any:
    """Return the value of a JSON or YAML text: an object or an array.

    JSON is tried first if the text looks like JSON: PyYAML rejects some JSON, and is 40 times slower. ``where``
    names the text in messages.

    Raises:
        SourceError: the text is not JSON or YAML, is not an object or array, or is nested too deeply.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if len(data) < ASIDE_BYTES:
        return _parsed(data, where)
    with building():
        return _parsed(data, where)


def _parsed(data: bytes, where: str) -> Any:
    reason = ""
    if data[:1024].lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(data)
        except RecursionError as error:
            raise SourceError(f"{where}: the JSON document is nested too deeply") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"not JSON ({error}), and "
    from operad_openapi._document.yamltext import YAMLError, load_yaml  # slow to import, and JSON needs none

    repeated: list[str] = []
    try:
        value = load_yaml(data, repeated)
    except YAMLError as error:
        raise SourceError(f"{where}: the text is {reason}not YAML: {error}") from error
    if repeated:
        more = f", and {len(repeated) - 1} more" if repeated[1:] else ""
        logger.warning("%s: a key occurs twice, and its last value is used: %s%s", where, repeated[0], more)
    if isinstance(value, (dict, list)):
        return value
    kind = "nothing" if value is None else f"text that begins with {' '.join(str(value).split())[:_EXCERPT]!r}"
    hint = "; JSON has no comments" if data.lstrip()[:2] in (b"//", b"/*") else ""
    raise SourceError(f"{where}: expected an object in JSON or YAML, got {kind}{hint}")


async def parse_aside(data: bytes, where: str) -> Any:
    """Return the value of a text; parse a large text in a thread. Raises the same errors as `parse`."""
    if len(data) < ASIDE_BYTES:
        return parse(data, where)
    return await asyncio.to_thread(parse, data, where)
