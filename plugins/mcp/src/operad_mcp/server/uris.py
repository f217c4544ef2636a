"""Reading URIs by their templates (RFC 6570), backwards. Needs no SDK."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")


def match(template: str, uri: str) -> dict[str, str] | None:
    """The values with which ``template`` expands to ``uri``; ``None`` if there are none.

    Simple and reserved expansion of one variable (``{x}``, ``{+x}``) are told apart; what another expression
    stands for is not taken apart, but fits.
    """
    pattern, names = _compiled(template)
    found = pattern.fullmatch(uri)
    if found is None:
        return None
    values = zip(names, found.groups(), strict=True)
    return {name: unquote(value) for name, value in values if name}


@lru_cache(maxsize=512)
def _compiled(template: str) -> tuple[re.Pattern[str], list[str]]:
    parts, names, end = [], [], 0
    for found in _EXPRESSION.finditer(template):
        parts.append(re.escape(template[end : found.start()]))
        operator, variable = found.groups()
        simple = re.fullmatch(r"[A-Za-z0-9_.%]+", variable) is not None and operator in ("", "+")
        names.append(variable if simple else "")
        parts.append(r"([^/?#]+)" if simple and not operator else r"(.*)")
        end = found.end()
    parts.append(re.escape(template[end:]))
    return re.compile("".join(parts), re.DOTALL), names
