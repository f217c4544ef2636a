"""From bytes to a value: JSON where it is JSON, else YAML."""

from __future__ import annotations

from typing import Any

import msgspec

from operad import SourceError
from operad_openapi._document.yamltext import YAMLError, load_yaml


def parse(data: bytes, where: str) -> Any:
    """The value of a JSON or YAML text.

    JSON is tried first wherever the text looks like it: PyYAML refuses some JSON, and is 40 times slower.

    Raises:
        SourceError: the text is neither, or is nested too deeply.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    reason = ""
    if data[:1024].lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(data)
        except RecursionError as error:
            raise SourceError(f"{where}: nested too deeply for a JSON document") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"not JSON ({error}), and "
    try:
        return load_yaml(data)
    except YAMLError as error:
        raise SourceError(f"{where}: {reason}not YAML: {error}") from error
