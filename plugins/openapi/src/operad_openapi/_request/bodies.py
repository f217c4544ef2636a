"""Choose the media types of request bodies, and encode their values.

Sources: OpenAPI 3.0.4, 3.1.1, 3.2.0, "Media Type Object" and "Encoding Object"; RFC 7578 (multipart/form-data).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from operad_openapi._document.contents import Body
from operad_openapi._document.document import Json
from operad_openapi._document.mediatypes import FORM, LINE_TYPES, MULTIPART, OCTETS, charset_of, essence, is_json
from operad_openapi._document.parameters import Parameter
from operad_openapi._document.schemas import SchemaView
from operad_openapi._request.files import FILE_SCHEMA, Files
from operad_openapi._request.multipart import Multipart
from operad_openapi._request.request import EncodedBody
from operad_openapi._request.styles import compile_parameter, form_encode, form_pairs
from operad_openapi._request.text import Encoder, SerializationError, encode_json, percent_encode, text_of

_LINES: Json = {"type": "array", "items": {}}


@attrs.frozen(eq=False, repr=False)
class BodyPlan:
    """The body of an operation: its media type, schema and encoder."""

    media_type: str
    """As it is written in the document; ``application/json`` for ``*/*`` and ``application/*``."""
    schema: Any
    """The schema as it applies to requests."""
    required: bool
    description: str
    encode: Callable[[Any], EncodedBody]

    @property
    def is_form(self) -> bool:
        """Whether the body is a form: ``application/x-www-form-urlencoded`` or ``multipart/form-data``."""
        return essence(self.media_type) in (FORM, MULTIPART)

    @property
    def is_mergeable(self) -> bool:
        """Whether the body is a form or JSON, so that its fields may be merged with the parameters."""
        return self.is_form or is_json(essence(self.media_type))

    def input_schema(self, view: SchemaView) -> Any:
        """Return the schema of the whole body as one value of the input."""
        media_type = essence(self.media_type)
        if is_json(media_type) or self.is_form:
            return self.schema
        if media_type in LINE_TYPES:
            return {
                "description": "A list, sent as JSON lines, or a file of them.",
                "anyOf": [_LINES, FILE_SCHEMA],
            }
        if media_type.startswith("text/") or media_type.endswith(("+xml", "/xml")):
            declared = self.schema.get("type") if isinstance(self.schema, dict) else None
            if declared in ("integer", "number", "boolean"):
                return self.schema  # written as text
            return {"type": "string", "description": f"The {media_type} text."}
        return FILE_SCHEMA


def _rank(media_type: str) -> int:
    kind = essence(media_type)
    if is_json(kind):
        return 0 if kind == "application/json" else 1
    if kind == FORM:
        return 2
    if kind.startswith("multipart/"):
        return 3
    if kind in ("*/*", "application/*"):
        return 4
    if kind.startswith("text/"):
        return 5
    return 6 if kind == OCTETS else 7


def choose_media_type(media_types: list[str], preferred: list[str]) -> str:
    """Return the media type to send: the first of ``preferred`` that is offered, else JSON, a form or another."""
    for wanted in preferred:
        for media_type in media_types:
            if essence(media_type) == essence(wanted):
                return media_type
    return min(media_types, key=_rank)


def plan_body(body: Body, view: SchemaView, preferred: list[str], upload_root: str | None) -> BodyPlan:
    """Return the media type, schema and encoder for ``body``.

    Args:
        body: the body of an operation.
        view: the schemas of requests.
        preferred: media types to choose if the document offers them, the most preferred one first.
        upload_root: the folder whose files an input may send by ``path``; if ``None``, ``path`` is rejected.
    """
    media_type = choose_media_type(list(body.content), preferred)
    media = body.content[media_type]
    schema = view.schema(media.get("schema", True))
    kind = essence(media_type)
    if kind in ("*/*", "application/*"):
        media_type = kind = "application/json"
    files = Files(upload_root)
    encoding = media.get("encoding") if isinstance(media.get("encoding"), dict) else {}
    encode: Callable[[Any], EncodedBody]
    if is_json(kind):
        encode = _json_encoder(media_type)
    elif kind in LINE_TYPES:
        encode = _lines_encoder(media_type, files.whole_body(media_type))
    elif kind == FORM:
        encode = _form_encoder(media_type, encoding or {})
    elif kind.startswith("multipart/"):
        encode = Multipart(kind, schema, encoding or {}, view, files).encode
    elif kind.startswith("text/") or kind.endswith(("+xml", "/xml")):
        encode = _text_encoder(media_type)
    else:
        encode = files.whole_body(media_type)
    return BodyPlan(media_type, schema, body.required, body.description, encode)


def _json_encoder(media_type: str) -> Callable[[Any], EncodedBody]:
    def encode(value: Any) -> EncodedBody:
        try:
            return EncodedBody(media_type, encode_json(value).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"the body cannot be converted to JSON: {error}") from error

    return encode


def _lines_encoder(media_type: str, whole: Callable[[Any], EncodedBody]) -> Callable[[Any], EncodedBody]:
    """Return an encoder that writes a list as JSON lines, and any other value as a file."""

    def encode(value: Any) -> EncodedBody:
        if not isinstance(value, (list, tuple)):
            return whole(value)
        try:
            return EncodedBody(media_type, "".join([encode_json(item) + "\n" for item in value]).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"an item cannot be converted to JSON: {error}") from error

    return encode


def _text_encoder(media_type: str) -> Callable[[Any], EncodedBody]:
    charset = charset_of(media_type) or "utf-8"

    def encode(value: Any) -> EncodedBody:
        if isinstance(value, (bytes, bytearray)):
            return EncodedBody(media_type, bytes(value))
        try:
            return EncodedBody(media_type, text_of(value).encode(charset))
        except (UnicodeEncodeError, LookupError) as error:
            raise SerializationError(f"the body cannot be encoded as {charset}: {error}") from error

    return encode


# --- application/x-www-form-urlencoded ---------------------------------------------------------------


def _form_encoder(media_type: str, encoding: Json) -> Callable[[Any], EncodedBody]:
    encoders: dict[str, Encoder] = {}
    for name, how in encoding.items():
        if encoder := _field_encoder(name, how):
            encoders[name] = encoder

    def encode(value: Any) -> EncodedBody:
        if not isinstance(value, Mapping):
            return EncodedBody(media_type, form_encode(value).encode())
        fragments: list[str] = []
        for name, item in value.items():
            if name in encoders:
                text = encoders[name](item)
                fragments += [] if text is None else [text]
            else:
                fragments += form_pairs(percent_encode(str(name)), item)
        return EncodedBody(media_type, "&".join(fragments).encode())

    return encode


def _field_encoder(name: str, how: Any) -> Encoder | None:
    """Return the encoder of a form field from its Encoding Object; ``None`` for the default."""
    if not isinstance(how, dict):
        return None
    if "collectionFormat" in how:
        return compile_parameter(Parameter(name, "query", collection_format=how["collectionFormat"]))
    if how.keys() & {"style", "explode", "allowReserved"}:
        return compile_parameter(
            Parameter(
                name,
                "query",
                style=how.get("style", "form"),
                explode=how.get("explode") if isinstance(how.get("explode"), bool) else None,
                allow_reserved=how.get("allowReserved") is True,
            )
        )
    if is_json(essence(str(how.get("contentType", "")))):
        return compile_parameter(Parameter(name, "query", content_type="application/json"))
    return None
