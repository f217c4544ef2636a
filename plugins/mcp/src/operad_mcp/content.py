"""The content blocks of an MCP server's responses.

Each block keeps the JSON object from which it was made, and reads its fields from that object. So fields of any
revision are kept, and `to_wire` returns exactly what the server sent. A value that is not a block of the protocol
(revisions 2024-11-05 to 2026-07-28) becomes a text block with its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, ClassVar, Self, TypeVar, cast

import attrs

from operad.plugin import record

_Made = TypeVar("_Made")
_AT_ONCE = 2_000
"""The number of blocks that are mapped, in some milliseconds, before the event loop runs."""


@record
class Annotations:
    """A server's hints about a block. Do not trust them. A hint that is missing or of a wrong type is ``None``."""

    audience: tuple[str, ...] | None = None
    """The readers of the block: ``user``, ``assistant``, or both."""
    priority: float | None = None
    """The importance of the block, from 0 (optional) to 1 (required)."""
    last_modified: str | None = None
    """The time of the last change, in ISO 8601."""


@attrs.frozen(init=False, eq=False, slots=False, repr=False)
class ContentBlock:
    """The base class of content blocks. ``type`` is the kind of block in the protocol, such as ``text``."""

    # The only attrs field, because the JSON Schema of envelopes is made from the fields; all other values are
    # read from `wire`.
    type: str

    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, wire: Mapping[str, Any]) -> None:
        object.__setattr__(self, "type", wire["type"])
        object.__setattr__(self, "_wire", wire)

    def __eq__(self, other: object) -> bool:
        return self.wire == other.wire if isinstance(other, ContentBlock) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # blocks are equal if their dicts are, and a dict has no hash

    def __repr__(self) -> str:
        text = repr(dict(self.wire))
        return f"{type(self).__name__}({text if len(text) <= 200 else text[:200] + '…'})"

    @property
    def wire(self) -> Mapping[str, Any]:
        """The JSON object of the block, as the server sent it."""
        wire: Mapping[str, Any] = self.__dict__["_wire"]
        return wire

    def to_wire(self) -> dict[str, Any]:
        """Return a shallow copy of the block's JSON object."""
        return dict(self.wire)

    @classmethod
    def from_wire(cls, wire: Any) -> ContentBlock:
        """Return the block for a JSON value: a text block with the JSON if it is not a block of the protocol."""
        if isinstance(wire, Mapping):
            kind = _KINDS.get(cast("str", wire.get("type"))) if isinstance(wire.get("type"), str) else None
            if kind is not None and kind.fits(wire):
                return kind(wire)
        return TextContent.of(as_text(wire))

    @classmethod
    def fits(cls, wire: Mapping[str, Any]) -> bool:
        """Return True if a JSON object has the fields that this kind of block requires."""
        return all([isinstance(wire.get(name), str) for name in cls.required])  # noqa: C419  # a generator is slower

    @property
    def annotations(self) -> Annotations | None:
        """The block's annotations; ``None`` if they are missing."""
        found = self.wire.get("annotations")
        if not isinstance(found, Mapping):
            return None
        audience, priority, modified = (found.get(name) for name in ("audience", "priority", "lastModified"))
        is_number = isinstance(priority, (int, float)) and not isinstance(priority, bool)
        return Annotations(
            tuple(map(str, audience)) if isinstance(audience, (list, tuple)) else None,
            cast("float", priority) if is_number else None,
            modified if isinstance(modified, str) else None,
        )

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """The object ``_meta`` of the block; ``None`` if it is missing."""
        meta = self.wire.get("_meta")
        return meta if isinstance(meta, Mapping) else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


class TextContent(ContentBlock):
    """A block of text."""

    required = ("text",)

    @classmethod
    def of(cls, text: str) -> Self:
        """Return a block with the given text."""
        return cls({"type": "text", "text": text})

    @property
    def text(self) -> str:
        """The text of the block."""
        return cast("str", self.wire["text"])


class ImageContent(ContentBlock):
    """A block with an image."""

    required = ("data", "mimeType")

    @property
    def data(self) -> str:
        """The image or audio, in base64."""
        return cast("str", self.wire["data"])

    @property
    def mime_type(self) -> str:
        """The media type, such as ``image/png``."""
        return cast("str", self.wire["mimeType"])


class AudioContent(ImageContent):
    """A block with audio. Its fields are those of `ImageContent`."""


class ResourceContent(ContentBlock):
    """A block with the contents of a resource: `text` or `blob`."""

    @classmethod
    def fits(cls, wire: Mapping[str, Any]) -> bool:
        """Return True if a JSON object has a resource with a URI and contents."""
        resource = wire.get("resource")
        return (
            isinstance(resource, Mapping)
            and isinstance(resource.get("uri"), str)
            and (isinstance(resource.get("text"), str) or isinstance(resource.get("blob"), str))
        )

    @property
    def resource(self) -> Mapping[str, Any]:
        """The JSON object of the resource: ``uri``, ``text`` or ``blob``, and perhaps ``mimeType``."""
        return cast("Mapping[str, Any]", self.wire["resource"])

    @property
    def uri(self) -> str:
        """The resource's URI."""
        return cast("str", self.resource["uri"])

    @property
    def mime_type(self) -> str | None:
        """The resource's media type; ``None`` if it is not stated."""
        return _text(self.resource, "mimeType")

    @property
    def text(self) -> str | None:
        """The contents, if they are text; otherwise ``None``."""
        return _text(self.resource, "text")

    @property
    def blob(self) -> str | None:
        """The contents in base64, if they are binary; otherwise ``None``."""
        return _text(self.resource, "blob")


class ResourceLinkContent(ContentBlock):
    """A block with a link to a resource. The operation ``resources.read`` reads the resource."""

    required = ("uri", "name")

    @property
    def uri(self) -> str:
        """The resource's URI."""
        return cast("str", self.wire["uri"])

    @property
    def name(self) -> str:
        """The resource's name."""
        return cast("str", self.wire["name"])

    @property
    def title(self) -> str | None:
        """The resource's name for people; ``None`` if it is not stated."""
        return _text(self.wire, "title")

    @property
    def description(self) -> str | None:
        """The resource's description; ``None`` if it is not stated."""
        return _text(self.wire, "description")

    @property
    def mime_type(self) -> str | None:
        """The resource's media type; ``None`` if it is not stated."""
        return _text(self.wire, "mimeType")

    @property
    def size(self) -> int | None:
        """The resource's size in bytes; ``None`` if it is not stated."""
        value = self.wire.get("size")
        return value if isinstance(value, int) and not isinstance(value, bool) else None


_KINDS: dict[str, type[ContentBlock]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource": ResourceContent,
    "resource_link": ResourceLinkContent,
}


def map_mcp_content_blocks(blocks: Any) -> list[ContentBlock]:
    """Return the blocks of a response's ``content``.

    Args:
        blocks: JSON as a server sends it, objects of the SDK, or `ContentBlock` objects. A single block is treated
            as a list with one item, and ``None`` as an empty list.
    """
    return [block if isinstance(block, ContentBlock) else _block(block) for block in _each(blocks)]


async def map_many_content_blocks(blocks: Any) -> list[ContentBlock]:
    """Return the same blocks as `map_mcp_content_blocks`, and let the event loop run after every 2,000 of them."""
    return await in_turns(_block, _each(blocks))


async def in_turns(make: Callable[[Any], _Made], items: Iterable[Any]) -> list[_Made]:
    """Return ``make(item)`` for each item. The event loop runs after every 2,000 items."""
    import asyncio  # imported here: finding plugins needs no event loop

    rest, made = iter(items), list[_Made]()
    while part := list(map(make, islice(rest, _AT_ONCE))):
        made += part
        if len(part) == _AT_ONCE:
            await asyncio.sleep(0)
    return made


def _each(blocks: Any) -> Iterable[Any]:
    if blocks is None:
        return []
    if isinstance(blocks, (str, bytes, Mapping)) or not isinstance(blocks, Iterable):
        return [blocks]
    return blocks


def _block(block: Any) -> ContentBlock:
    if isinstance(block, ContentBlock):
        return block
    dump = getattr(block, "model_dump", None)  # the SDK's models
    if dump is not None:
        block = dump(mode="json", by_alias=True, exclude_unset=True) | {"type": getattr(block, "type", None)}
    return ContentBlock.from_wire(block)


def as_text(value: Any) -> str:
    """Return a value as JSON, or its ``str()`` if it has no JSON form."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return str(value)
