"""Fill path templates with encoded values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import quote

from operad_openapi._request.text import RESERVED, SerializationError

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class PathTemplate:
    """A path with placeholders, filled in a single pass.

    A ``#fragment`` of the template is dropped; a fixed ``?query`` becomes `query`. The last segment may be empty
    if ``slashes`` names its placeholder.

    Attributes:
        names: the placeholders, in order.
        query: the fixed query, encoded, or ``""``.
    """

    __slots__ = ("_pieces", "_rest", "_root", "names", "query")

    def __init__(self, template: str, slashes: Collection[str] = ()) -> None:
        path, _, _ = template.partition("#")
        path, _, query = path.partition("?")
        self.query = quote(query, safe="%" + RESERVED)
        # Per segment with placeholders: the fixed segments before it; then its own parts, fixed texts at even
        # places, names of placeholders at odd ones.
        self._pieces: list[tuple[str, list[str]]] = []
        names: list[str] = []
        fixed = ""
        for number, segment in enumerate(path.split("/")):
            parts = _PLACEHOLDER.split(segment)
            parts[::2] = [quote(part, safe="%:@!$&'()*+,;=") for part in parts[::2]]
            if number:
                fixed += "/"
            if len(parts) == 1:
                fixed += parts[0]
                continue
            names += parts[1::2]
            self._pieces.append((fixed, parts))
            fixed = ""
        self._rest = fixed
        # An empty last segment is the root of what has folders: "/contents/".
        is_last = bool(names) and not fixed and parts == ["", names[-1], ""]
        self._root = parts if is_last and names[-1] in slashes else None
        self.names = tuple(dict.fromkeys(names))

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the path with the encoded ``values`` in place.

        Raises:
            SerializationError: a segment would be empty, ``.`` or ``..``, and so lead to a resource that the
                document does not describe.
        """
        path = ""
        for fixed, parts in self._pieces:
            if len(parts) == 3:
                segment = parts[0] + values[parts[1]] + parts[2]
            else:
                segment = "".join([values[part] if index % 2 else part for index, part in enumerate(parts)])
            # "%2E%2E" is the longest text of dots.
            if "/" in segment:
                for piece in segment.split("/"):
                    self._refuse_dots(piece, parts)
            elif len(segment) <= 6 and segment.strip("%2Ee.") == "" and (segment or parts is not self._root):
                self._refuse_dots(segment, parts)
            path += fixed + segment
        return path + self._rest

    @staticmethod
    def _refuse_dots(segment: str, parts: list[str]) -> None:
        if segment.replace("%2E", ".").replace("%2e", ".") in ("", ".", ".."):
            raise SerializationError(
                f'the path segment {{{"}{".join(parts[1::2])}}} would be "{segment}"; '
                'expected a value that is not empty, "." or ".."'
            )
