"""Response envelopes: the result of every call, and the metadata that states where it came from.

An envelope is ``data`` plus ``meta``; ``meta.source`` names the kind. The core owns the kind ``local``; every
other kind is contributed by a plugin as an `EnvelopeKind`. On the wire an envelope is a JSON object with camelCase
names; data of type ``bytes`` are sent as base64 with ``meta.encoding = "base64"``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import time_ns as _now
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeGuard, TypeVar

import attrs

from operad.errors import CallError, ErrorCode, OperadError
from operad.records import record
from operad.wire import meta_from_wire, meta_to_wire
from operad.words import html_json

logger = logging.getLogger("operad")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WIRE_SOURCES = ("local", "http", "mcp")
"""The envelope sources that `is_response_envelope` accepts if no kinds are given."""

_DISTRIBUTIONS = {"http": "operad-openapi", "mcp": "operad-mcp"}
"""The distribution that declares a kind, for the hint in a warning."""
_MAX_WARNED = 100
"""The largest number of sources for which a warning is logged, because a peer chooses their names."""


def _read_only(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(fields))


class _Received:
    """A slot that attrs does not know, so that it is not part of the constructor, equality, copies and pickles."""

    __slots__ = ("_received",)

    _received: Any


@record
class ResponseEnvelope(_Received, Generic[T_co]):
    """The result of a call: its data, and metadata about where they came from.

    Args:
        data: the result; JSON-like, or ``bytes`` for binary content.
        meta: an instance of an `EnvelopeKind`'s ``meta_type``; ``meta.source`` names the kind.
    """

    data: T_co
    meta: Any

    def __init__(self, data: T_co, meta: Any) -> None:
        # One is made for every call: this takes three quarters of the time of attrs' `__init__` for a frozen
        # class.
        _set_data(self, data)
        _set_meta(self, meta)

    @property
    def received(self) -> Any:
        """The handler's data before they were cast to the output schema: the same object, not a copy.

        If this process cast nothing, as for an envelope from another process, it is the same as `data`.
        """
        try:
            return self._received
        except AttributeError:
            return self.data

    def _repr_html_(self) -> str:
        data: Any = self.data
        is_binary = isinstance(data, (bytes, bytearray, memoryview))
        shown = f"<p>{len(data)} bytes</p>" if is_binary else html_json(data)
        return f"{shown}<details><summary>meta</summary>{html_json(meta_to_wire(self.meta))}</details>"

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form ``{"data": …, "meta": {"source": …, …}}``."""
        meta = meta_to_wire(self.meta)
        data: Any = self.data
        if isinstance(data, (bytes, bytearray, memoryview)):
            data = _msgspec().to_builtins(data)  # base64, at two thirds of what the standard library takes
            meta["encoding"] = "base64"
        return {"data": data, "meta": meta}


_set_data: Callable[[Any, Any], None] = ResponseEnvelope.__dict__["data"].__set__
_set_meta: Callable[[Any, Any], None] = ResponseEnvelope.__dict__["meta"].__set__
_set_received: Callable[[Any, Any], None] = _Received.__dict__["_received"].__set__


def with_received(envelope: ResponseEnvelope[T], received: Any) -> ResponseEnvelope[T]:
    """Set `received` of an envelope that was just made, and return the envelope."""
    _set_received(envelope, received)
    return envelope


@record
class LocalResponseMeta:
    """Metadata of a result made in this process."""

    source: ClassVar[str] = "local"

    operation_id: str
    timestamp: int
    """When the result was made, in epoch ms."""

    def __init__(self, operation_id: str, timestamp: int) -> None:
        _set_operation_id(self, operation_id)
        _set_timestamp(self, timestamp)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: ``{source, operationId, timestamp}``."""
        return {"source": "local", "operationId": self.operation_id, "timestamp": self.timestamp}


_set_operation_id: Callable[[Any, str], None] = LocalResponseMeta.__dict__["operation_id"].__set__
_set_timestamp: Callable[[Any, int], None] = LocalResponseMeta.__dict__["timestamp"].__set__


@record
class OpaqueMeta:
    """Metadata of an envelope whose kind this process does not know.

    Such an envelope is passed on unchanged, because the work is done even if the metadata cannot be read here.
    """

    source: str
    fields: Mapping[str, Any] = attrs.field(converter=_read_only)
    """The metadata as JSON, including ``source``; read-only."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: a copy of `fields`, as this process received them."""
        return dict(self.fields)


def local_envelope(data: T, operation_id: str, timestamp: int | None = None) -> ResponseEnvelope[T]:
    """Return an envelope of kind ``local``; ``timestamp`` is in epoch ms, by default now."""
    return ResponseEnvelope(
        data, LocalResponseMeta(operation_id, _now() // 1_000_000 if timestamp is None else timestamp)
    )


def unwrap(envelope: ResponseEnvelope[T_co]) -> T_co:
    """Return the data of an envelope, without its metadata."""
    return envelope.data


def is_response_envelope(
    value: object, kinds: EnvelopeKinds | Iterable[str] | None = None
) -> TypeGuard[ResponseEnvelope[Any] | Mapping[str, Any]]:
    """Return True if ``value`` is a `ResponseEnvelope`, or a mapping that is the JSON form of one.

    Args:
        value: any object.
        kinds: the values of ``meta.source`` that a mapping may have; by default ``local``, ``http`` and ``mcp``.
    """
    if isinstance(value, ResponseEnvelope):
        return True
    if not isinstance(value, Mapping) or "data" not in value:
        return False
    meta = value.get("meta")
    if not isinstance(meta, Mapping):
        return False
    source = meta.get("source")
    sources = kinds.sources if isinstance(kinds, EnvelopeKinds) else kinds
    return isinstance(source, str) and source in (WIRE_SOURCES if sources is None else sources)


@record
class EnvelopeKind:
    """A kind of envelope, as a plugin declares it. Raises `OperadError` for an unusable ``meta_type``.

    The meta type is an attrs class with a class attribute ``source``. Its JSON form is derived from it: names
    become camelCase (``attrs.field(metadata={"wire": "_meta"})`` sets another name). A field is left out if its
    value is ``msgspec.UNSET``, or if value and default are ``None`` (use ``UNSET`` as the default if ``None`` is a
    legal value). A class used in its fields may define ``to_wire(self)`` and a class method ``from_wire(wire)``.

    Args:
        source: the value of ``meta.source``, unique among all plugins.
        meta_type: the attrs class of the metadata.
        is_error: a function that returns True for the metadata of a failed call, whose data do not follow the
            output schema; if ``None``, no envelope of this kind is that of a failed call.
    """

    source: str
    meta_type: type[Any]
    is_error: Callable[[Any], bool] | None = None

    def __attrs_post_init__(self) -> None:
        if not attrs.has(self.meta_type):
            raise OperadError(
                f'envelope kind "{self.source}": meta_type must be an attrs class, got {self.meta_type!r:.80}'
            )
        if getattr(self.meta_type, "source", None) != self.source:
            raise OperadError(
                f'envelope kind "{self.source}": {self.meta_type.__name__}.source must be "{self.source}", '
                f"got {getattr(self.meta_type, 'source', None)!r}; declare source: ClassVar[str]"
            )


LOCAL_KIND = EnvelopeKind("local", LocalResponseMeta)


class EnvelopeKinds:
    """The envelope kinds that an application knows, always with ``local``; each `Plugins` has its own object."""

    __slots__ = ("_kinds", "_warned")

    def __init__(self, kinds: Iterable[EnvelopeKind] = ()) -> None:
        self._warned: set[str] = set()
        self._kinds: dict[str, EnvelopeKind] = {LOCAL_KIND.source: LOCAL_KIND}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[EnvelopeKind]:
        return iter(self._kinds.values())

    def __contains__(self, source: object) -> bool:
        return source in self._kinds

    @property
    def sources(self) -> tuple[str, ...]:
        """The ``source`` of each known kind."""
        return tuple(self._kinds)

    def get(self, source: str) -> EnvelopeKind | None:
        """Return the kind with this ``source``, or ``None`` if no plugin declares it."""
        return self._kinds.get(source)

    def add(self, kind: EnvelopeKind) -> None:
        """Add a kind. Raises `OperadError` if another kind has the same ``source``."""
        taken = self._kinds.get(kind.source)
        if taken is not None and taken != kind:
            raise OperadError(
                f'envelope kind "{kind.source}" is claimed twice: by {_name(taken.meta_type)} '
                f"and by {_name(kind.meta_type)}; choose another source for one of them"
            )
        self._kinds[kind.source] = kind

    def is_error(self, envelope: ResponseEnvelope[Any]) -> bool:
        """Return True if the envelope is the result of a failed call; False if its kind is not known."""
        kind = self.get(envelope.meta.source)
        return kind is not None and kind.is_error is not None and kind.is_error(envelope.meta)

    def passes(self, envelope: ResponseEnvelope[Any]) -> bool:
        """Return True if the data must not be cast: the call failed, or the kind is not known, which is logged."""
        meta = envelope.meta
        kind = self._kinds.get(meta.source)
        if kind is None:
            self.warn_unknown(meta.source)
            return True
        return kind.is_error is not None and kind.is_error(meta)

    def warn_unknown(self, source: str) -> None:
        """Log one warning for each unknown source, with the plugin to install, and at most 100 in all."""
        if source in self._warned or len(self._warned) >= _MAX_WARNED:
            return
        self._warned.add(source)
        known = _DISTRIBUTIONS.get(source)
        install = f"pip install {known}" if known else "install the plugin that declares it"
        logger.warning(
            "no plugin declares the envelope source %.100r (known: %s), so its results are passed on unchanged; "
            "for typed metadata, %s, and use OperationRegistry(load_plugins()) or PendingRequestMap(…, plugins=…)",
            source,
            ", ".join(sorted(self._kinds)),
            install,
        )

    def from_wire(self, wire: object) -> ResponseEnvelope[Any]:
        """Return the envelope with this JSON form.

        Unknown fields are ignored. The metadata of an unknown kind become an `OpaqueMeta`.

        Raises:
            CallError: ``SERIALIZATION_ERROR`` if ``wire`` is not the JSON form of an envelope.
        """
        # The commonest kind, made for every remote call: without a converter, which is slower.
        if type(wire) is dict and "data" in wire and type(meta := wire.get("meta")) is dict:
            operation_id, timestamp = meta.get("operationId"), meta.get("timestamp")
            if meta.get("source") == "local" and type(operation_id) is str and type(timestamp) is int:
                data = wire["data"] if "encoding" not in meta else _data_from_wire(wire["data"], meta)
                return local_envelope(data, operation_id, timestamp)
        if not isinstance(wire, Mapping) or "data" not in wire or not isinstance(wire.get("meta"), Mapping):
            got = type(wire).__name__
            if isinstance(wire, Mapping):
                got = f"meta of type {type(wire.get('meta')).__name__}" if "data" in wire else "no data"
            raise _malformed(f"expected an object with data and, as meta, an object, got {got}")
        meta = wire["meta"]
        source = meta.get("source")
        if not isinstance(source, str) or not source:
            raise _malformed(f"meta.source: expected a non-empty string, got {source!r:.60}")
        kind = self.get(source)
        if kind is None:
            self.warn_unknown(source)
            return ResponseEnvelope(_opaque_data(wire["data"], meta), OpaqueMeta(source, meta))
        try:
            structured = meta_from_wire(kind.meta_type, meta)
        except Exception as error:  # cattrs raises what its hooks and the class raise
            raise _malformed(f"meta does not fit {_name(kind.meta_type)}: {error}") from error
        return ResponseEnvelope(_data_from_wire(wire["data"], meta), structured)


def _name(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _malformed(why: str) -> CallError:
    return CallError(ErrorCode.SERIALIZATION_ERROR, f"not a response envelope: {why}")


def _data_from_wire(data: Any, meta: Mapping[str, Any]) -> Any:
    if meta.get("encoding") != "base64":
        return data
    if not isinstance(data, str):
        raise _malformed(f"data: expected a string, as meta.encoding is base64, got {type(data).__name__}")
    msgspec = _msgspec()
    try:
        return msgspec.convert(data, bytes)  # as strict as the standard library, and four times as fast
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter for half of a surrogate pair
        raise _malformed(f"data is not valid base64: {error}") from error


def _msgspec() -> Any:
    import msgspec  # not needed by envelopes that stay in their process

    return msgspec


def _opaque_data(data: Any, meta: Mapping[str, Any]) -> Any:
    try:
        return _data_from_wire(data, meta)
    except CallError:  # unreadable metadata are passed on as received
        return data
