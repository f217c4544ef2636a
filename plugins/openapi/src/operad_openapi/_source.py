"""The objects that the operations of one document share: the document, its views, the HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from operad import ErrorCode, ErrorDefinition, Schema, from_schema
from operad_openapi._document.contents import response_content
from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import RawOperation
from operad_openapi._document.mediatypes import essence, is_json
from operad_openapi._document.schemas import SchemaView
from operad_openapi._http.client import HTTPClient
from operad_openapi._http.credentials import Authenticator
from operad_openapi._http.tokens import Tokens
from operad_openapi.config import HTTPServiceConfig
from operad_schema import lazy_schema

_FAILED = str(ErrorCode.EXECUTION_ERROR)


class DocumentSource:
    """The document, schemas, credentials and HTTP client that the operations of one document share."""

    def __init__(self, document: Document, config: HTTPServiceConfig) -> None:
        self.document = document
        self.config = config
        self.client = HTTPClient(config, trusted=config.trusted)
        self.input_view = SchemaView(document, is_input=True)
        self.output_view = SchemaView(document, is_input=False)
        self.authenticator = Authenticator(document, config, Tokens(lambda: self.client, config.namespace))
        self.operations: Mapping[str, Any] = {}
        """Name -> operation of the document, for links between operations."""
        self._responses: dict[str, ErrorDefinition] = {}

    def keep(self, root: Json) -> None:
        """Replace the document's root by a part of it. This is allowed only before an operation is used."""
        self.document.root = root
        self.input_view = SchemaView(self.document, is_input=True)
        self.output_view = SchemaView(self.document, is_input=False)

    def schema(self, node: Any, view: SchemaView) -> Schema:
        """Return the `Schema` of ``node``, a part of ``view``; it is compiled when it is first used."""
        return from_schema(
            node if isinstance(node, (dict, bool)) else True,  # anything else constrains nothing
            dialect=cast("Any", self.document.dialect),
            document=view.root,
            trusted=self.config.trusted,
        )

    def error_definition(self, operation: RawOperation, status: str, node: Any) -> ErrorDefinition:
        """Return the error definition of a declared response; responses with the same reference share one."""
        reference = node.get("$ref") if isinstance(node, dict) else None
        key = f"{status} {reference}" if isinstance(reference, str) else None
        if key is not None and key in self._responses:
            return self._responses[key]
        try:
            response = self.document.resolve(node)
        except PointerError:
            response = None
        description = response.get("description") if isinstance(response, dict) else None
        definition = ErrorDefinition(
            _FAILED,
            f"HTTP {status}" + (f": {description}" if isinstance(description, str) and description else ""),
            lazy_schema(partial(self._error_schema, operation, status, node)),  # half the objects of a closure
            int(status) if status.isdecimal() else None,
        )
        if key is not None:
            self._responses[key] = definition
        return definition

    def _error_schema(self, operation: RawOperation, status: str, node: Any) -> Schema:
        """Return the schema of the details of an error: ``statusCode`` and ``body``."""
        try:
            content = response_content(self.document, operation, node)
        except PointerError:
            content = {}
        bodies = [
            self.output_view.schema(media["schema"])
            for media_type, media in content.items()
            if is_json(essence(media_type)) and "schema" in media
        ]
        code: Json = {"const": int(status)} if status.isdecimal() else {"type": "integer"}
        properties: Json = {"statusCode": code}
        if bodies:
            properties["body"] = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        return self.schema({"type": "object", "properties": properties}, self.output_view)
