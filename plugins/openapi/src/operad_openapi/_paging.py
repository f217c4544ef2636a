"""Pagination of an operation: by the ``Link`` header, or by the configuration."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from operad import CallError, ErrorCode, ResponseEnvelope
from operad_openapi._document.document import PointerError
from operad_openapi._operation import DocumentOperation
from operad_openapi._request.queries import QueryReader
from operad_openapi.config import Pagination
from operad_openapi.pagination import next_link

logger = logging.getLogger("operad.openapi")

_BY_LINK = Pagination()
_ONE_PAGE = (
    "%s: one page, because the response has no Link header and no pagination rule fits; if there are more pages, "
    'set pagination = { "%s" = { … } }'
)
_HEADER = "header:"
_INDEX = re.compile(r"-?[0-9]{1,9}\Z")


class DocumentPages:
    """The pages of one operation; see `operad.operations.Pages`.

    Args:
        operation: the operation.
        name: its name in messages.
        rule: its pagination in the configuration; ``None`` to use the ``Link`` header.
    """

    __slots__ = ("_may_warn", "_name", "_operation", "_reader", "_rule")

    def __init__(self, operation: DocumentOperation, name: str, rule: Pagination | None) -> None:
        self._operation = operation
        self._name = name
        self._rule = rule or _BY_LINK
        self._may_warn = True
        self._reader: QueryReader | None = None

    def following(self, input: Mapping[str, Any], envelope: ResponseEnvelope[Any]) -> Mapping[str, Any] | None:
        """Return the input of the next page, or ``None`` after the last one.

        Raises `CallError` if the link to the next page cannot be turned into an input.
        """
        rule = self._rule
        if rule.more is not None and not _value_at(envelope, rule.more):
            return None
        if rule.cursor is not None:
            value = _value_at(envelope, rule.cursor)
            return None if value in (None, "", False) else self._with(input, str(rule.parameter), value)
        if rule.offset is not None or rule.page is not None:
            return self._counted(input, envelope)
        url = _value_at(envelope, rule.next) if rule.next is not None else None
        if rule.next is None:
            url = next_link(envelope.meta.headers)
            if "link" in envelope.meta.headers:
                self._may_warn = False  # the last page has a header without a next page, or none
            elif rule is _BY_LINK and self._may_warn:
                self._may_warn = False
                logger.warning(_ONE_PAGE, self._name, self._name)
        return self._by_url(input, envelope, url) if isinstance(url, str) and url else None

    def items(self, envelope: ResponseEnvelope[Any]) -> list[Any]:
        """Return the items of a page: the list that the rule names, the page itself, or its only list.

        If the rule names a value that is not a list, the result has only that value; if it is missing, the result
        is empty. Raises `CallError` if the rule names no list, and the page is neither a list nor an object with
        exactly one list.
        """
        rule, data = self._rule, envelope.data
        if rule.items is not None:
            found = _value_at(envelope, rule.items)
            return found if isinstance(found, list) else [] if found is None else [found]
        if isinstance(data, list):
            return data
        lists = [value for value in data.values() if isinstance(value, list)] if isinstance(data, Mapping) else []
        if len(lists) == 1:
            return lists[0]
        raise self._failed(
            f"expected one list on a page, got {len(lists)}; to name the list of the items, set "
            f'pagination = {{ "{self._name}" = {{ items = "…" }} }}'
        )

    def _counted(self, input: Mapping[str, Any], envelope: ResponseEnvelope[Any]) -> Mapping[str, Any] | None:
        """Return the next offset, or the next page's number."""
        rule = self._rule
        count = len(self.items(envelope))
        limit = _input_at(input, rule.limit) if rule.limit is not None else None
        if count == 0 or (isinstance(limit, int) and count < limit):
            return None
        if rule.offset is not None:
            start = _input_at(input, rule.offset)
            return self._with(input, rule.offset, (start if isinstance(start, int) else 0) + count)
        assert rule.page is not None
        page = _input_at(input, rule.page)
        following = (page if isinstance(page, int) else rule.first_page) + 1
        total = _value_at(envelope, rule.pages) if rule.pages is not None else None
        return None if isinstance(total, int) and following > total else self._with(input, rule.page, following)

    def _with(self, input: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
        """Return ``input`` with another value; ``body.cursor`` is a member of the body."""
        properties = self._operation.plan.inputs.schema["properties"]
        if key in properties or "." not in key:
            return {**input, key: self._fitting(properties.get(key, True), value)}
        outer, _, inner = key.partition(".")
        held = input.get(outer)
        return {**input, outer: {**(held if isinstance(held, Mapping) else {}), inner: value}}

    def _fitting(self, schema: Any, value: Any) -> Any:
        """Return a value as the parameter takes it: a cursor may arrive as a number and be sent as text."""
        if self._accepts(schema, value) or isinstance(value, (dict, list)):
            return value
        text = str(value)
        if self._accepts(schema, text):
            return text
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else value

    def _by_url(
        self, input: Mapping[str, Any], envelope: ResponseEnvelope[Any], url: str
    ) -> Mapping[str, Any] | None:
        """Return the input for the query of a URL. The URL itself is not called, because it may have any host."""
        before = envelope.meta.url or ""
        if self._reader is None:
            inputs = self._operation.plan.inputs
            self._reader = QueryReader(inputs.query, self._accepts, self._resolve)
        try:
            after = urlsplit(urljoin(before, url)).query
        except ValueError as error:
            raise self._failed(
                f"expected a URL as the link to the next page, got an invalid one: {error}"
            ) from error
        following, unknown = self._reader.changed(input, urlsplit(before).query, after)
        if following == dict(input) and unknown:
            names = ", ".join(sorted(map(repr, unknown)))
            raise self._failed(
                f"the link to the next page has parameters that the operation does not have: {names}"
            )
        return following

    def _accepts(self, schema: Any, value: Any) -> bool:
        source = self._operation.source
        return source.schema(source.input_view.schema(schema), source.input_view).is_valid(value)

    def _resolve(self, schema: Any) -> Any:
        try:
            return self._operation.source.input_view.resolve(schema)
        except PointerError:
            return True

    def _failed(self, reason: str) -> CallError:
        message = f"{self._operation.raw.method} {self._operation.raw.path}: {reason}"
        return CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})


def _value_at(envelope: ResponseEnvelope[Any], path: str) -> Any:
    """Return the value at ``a.b.0`` in the data (``-1``: the last item), or of ``header:name``; else ``None``."""
    if path.startswith(_HEADER):
        return envelope.meta.headers.get(path.removeprefix(_HEADER).lower())
    value = envelope.data
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and _INDEX.match(part) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _input_at(input: Mapping[str, Any], key: str) -> Any:
    if key in input or "." not in key:
        return input.get(key)
    outer, _, inner = key.partition(".")
    held = input.get(outer)
    return held.get(inner) if isinstance(held, Mapping) else None
