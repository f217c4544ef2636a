"""The OpenAPI 3.1 document of a registry, with one path per operation and shared definitions as components."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from operad import ErrorCode, ErrorDefinition, Identity, OperationRegistry, OperationSpec, OperationType
from operad.plugin import may_list
from operad.wire import to_json
from operad_schema.bundling import SharedDefinitions
from operad_schema.formats import CHECKED
from operad_serve.api.forms import path_of
from operad_serve.api.multipart import MULTIPART, multipart_schema
from operad_serve.api.options import OpenAPIServerConfig
from operad_serve.api.plain import plain
from operad_serve.api.queries import Root, query_form
from operad_serve.problems import PROBLEM_TYPE

logger = logging.getLogger("operad.serve")

Json = dict[str, Any]
_Key = tuple[Any, ...]

COMPONENTS = "#/components/schemas/"
_STEP = 0.005
"""Seconds after which the writing of a document lets other tasks run."""
_MAX_KEPT = 16
"""How many documents are kept, one for each set of operations that a caller may see."""

_PROBLEM: Json = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["title", "status", "detail"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "The code of the call's error."},
        "details": {"description": "More, for programs."},
        "requestId": {"type": "string"},
    },
}
_PROBLEM_NAME = "OperadProblem"
_FAILURE_NAME = "OperadStreamFailure"
_END_NAME = "OperadStreamEnd"
_RESPONSE_HEADERS: Json = {
    "Operad-Source": {"$ref": "#/components/headers/OperadSource"},
    "Operad-Meta": {"$ref": "#/components/headers/OperadMeta"},
    "Operad-Request-Id": {"$ref": "#/components/headers/OperadRequestId"},
}
_COMPONENT_HEADERS: Json = {
    "OperadSource": {"description": "The kind of source that returned the result.", "schema": {"type": "string"}},
    "OperadMeta": {
        "description": "The scalar metadata of the result, as far as they fit into 4 KiB.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    "OperadRequestId": {"description": "The id of the call in the logs.", "schema": {"type": "string"}},
}


class DocumentMaker:
    """A writer of the OpenAPI documents of a registry, which keeps each document until the operations change.

    Args:
        registry: the registry whose operations are described.
        config: the options, such as title and version.
        guarded: whether callers are authenticated. If so, operations declare that they require a token.
    """

    def __init__(self, registry: OperationRegistry, config: OpenAPIServerConfig, *, guarded: bool) -> None:
        self._registry = registry
        self._config = config
        self._guarded = guarded
        self._kept: OrderedDict[_Key, tuple[bytes, Sequence[OperationSpec]]] = OrderedDict()
        self._being_made: dict[_Key, asyncio.Task[bytes]] = {}
        self._skipped: set[str] = set()

    async def text(self, identity: Identity | None, root_path: str) -> bytes:
        """Return the document as JSON, with the operations that a caller may call.

        Args:
            identity: the caller; None for an anonymous one.
            root_path: the mount point of the application, which becomes the document's server.
        """
        specs = [spec for spec in self._registry.specs() if may_list(spec.access_control, identity)]
        key = (root_path, *(id(spec) for spec in specs))
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        making = self._being_made.get(key)
        loop = asyncio.get_running_loop()
        if making is None or making.done() or making.get_loop() is not loop:
            making = self._being_made[key] = loop.create_task(self._make(key, specs, root_path))
        # Concurrent requests wait for the same document. A client that leaves does not stop it for the others.
        return await asyncio.shield(making)

    async def _make(self, key: _Key, specs: Sequence[OperationSpec], root_path: str) -> bytes:
        try:
            described, turn = [], time.perf_counter()
            for spec in specs:
                described.append(await self._described(spec))
                if time.perf_counter() - turn > _STEP:
                    await asyncio.sleep(0)
                    turn = time.perf_counter()
            # The schemas of one operation can include a whole API: half a second, too long for the loop.
            text = await asyncio.to_thread(self._document, described, root_path)
        finally:
            del self._being_made[key]
        # The specs are kept too: the key holds their ids, which are valid while they live.
        self._kept[key] = text, specs
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        return text

    def _document(self, specs: Sequence[OperationSpec], root_path: str) -> bytes:
        """Write the document of operations whose schemas are known.

        Each part is encoded on its own, because the encoder blocks other threads until it is done.
        """
        # A format that is published is one that is checked; others, such as `password`, are hints.
        omitted = frozenset({"regex"}) if self._config.check_formats else CHECKED | {"regex"}
        ids = frozenset(spec.id for spec in specs)
        writer = _Writer(omitted, ids, guarded=self._guarded, anonymous=self._config.anonymous)
        paths: list[tuple[str, bytes]] = []
        for spec in specs:
            path = path_of(spec.id)
            if path is None:
                self._skip(spec)
            else:
                paths.append((path, self._path_item(writer, spec)))
        info: Json = {"title": self._config.title or "operad", "version": self._config.version}
        if self._config.description:
            info["description"] = self._config.description
        namespaces = sorted({spec.namespace for spec in specs})
        document = {
            "openapi": to_json("3.1.0"),
            "info": to_json(info),
            "x-operad": to_json({"version": 1}),
            "servers": to_json([{"url": root_path or "/"}]),
            "tags": to_json([{"name": namespace} for namespace in namespaces]),
            "paths": _joined(paths),
            "components": _joined(writer.components()),
        }
        return _joined(document.items())

    def _path_item(self, writer: _Writer, spec: OperationSpec) -> bytes:
        """Return the path item of an operation as JSON, without its schemas if they cannot be written."""
        try:
            return to_json(writer.path_item(spec))
        except Exception as error:  # noqa: BLE001  # a mistake of one source must not hide the other operations
            if spec.id not in self._skipped:
                self._skipped.add(spec.id)
                logger.warning("%s is described without its schemas: %s", spec.id, error)
        bare = attrs.evolve(spec, input_schema=None, output_schema=None, error_schemas=())
        return to_json(writer.path_item(bare))

    async def _described(self, spec: OperationSpec) -> OperationSpec:
        try:
            return await self._registry.describe(spec.id) or spec
        except Exception as error:  # noqa: BLE001  # a mistake of one source must not hide the other operations
            logger.warning("%s cannot be described: %s", spec.id, error)
            return spec

    def _skip(self, spec: OperationSpec) -> None:
        if spec.id not in self._skipped:
            self._skipped.add(spec.id)
            logger.warning("%s is not served over HTTP: a part of its id is empty, . or ..; rename it", spec.id)


class _Writer:
    """A writer of path items, which collects the definitions that they share."""

    def __init__(self, omitted: frozenset[str], ids: frozenset[str], *, guarded: bool, anonymous: bool) -> None:
        self._ids = ids
        self._guarded = guarded
        self._anonymous = anonymous
        self._omitted = omitted
        self._shared = SharedDefinitions(COMPONENTS)
        problem, count = {"$ref": COMPONENTS + _PROBLEM_NAME}, {"count": {"type": "integer"}}
        self._shared.definitions[_PROBLEM_NAME] = _PROBLEM
        self._shared.definitions[_FAILURE_NAME] = _json_event(problem, "operad.error")
        self._shared.definitions[_END_NAME] = _json_event({"type": "object", "properties": count}, "operad.end")

    def components(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the JSON of each part of ``components``."""
        definitions = self._shared.definitions.items()
        titled = _with_own_titles(definitions)
        yield "schemas", _joined((name, to_json(self._plain(schema))) for name, schema in titled)
        yield "headers", to_json(_COMPONENT_HEADERS)
        problem = _problem_response("The call failed.", {"$ref": COMPONENTS + _PROBLEM_NAME})
        yield "responses", to_json({"Problem": problem})
        if self._guarded:
            yield "securitySchemes", to_json({"bearer": {"type": "http", "scheme": "bearer"}})

    def _plain(self, schema: Any) -> Any:
        return plain(schema, self._omitted)

    def path_item(self, spec: OperationSpec) -> Json:
        """Return a path item: POST for every operation, and GET if the input fits into a query string."""
        input_schema = self._plain(spec.input_schema.bundled(self._shared))
        shared = self._operation(spec)
        post: Json = {**shared, "operationId": spec.id, "x-operad": self._mark(spec)}
        post["requestBody"] = {
            "required": _needs_body(spec, input_schema),
            "content": {"application/json": {"schema": input_schema}},
        }
        upload = multipart_schema(input_schema, Root(self._shared.definitions, COMPONENTS))
        if upload is not None:
            post["requestBody"]["content"][MULTIPART] = {"schema": upload}
        form = query_form(spec, input_schema, self._shared.definitions, COMPONENTS)
        if form is None:
            return {"post": post}
        parameters = [field.declaration() for field in form.fields.values()]
        get: Json = {**shared, "parameters": parameters}
        if (name := f"{spec.id}.get") not in self._ids:
            get["operationId"] = name
        return {"get": get, "post": post}

    def _operation(self, spec: OperationSpec) -> Json:
        operation: Json = {"tags": [spec.namespace, *(tag for tag in spec.tags if tag != spec.namespace)]}
        if spec.title:
            operation["summary"] = spec.title
        if spec.description:
            operation["description"] = spec.description
        if spec.deprecated:
            operation["deprecated"] = True
        operation["responses"] = self._responses(spec)
        if self._guarded and not (self._anonymous and spec.access_control.is_open):
            operation["security"] = [{"bearer": []}]
        return operation

    def _responses(self, spec: OperationSpec) -> Json:
        output = self._plain(spec.output_schema.bundled(self._shared))
        if spec.type is OperationType.SUBSCRIPTION:
            content: Json = {"text/event-stream": {"schema": _event(output)}}
        else:
            # The envelope form is not declared, or clients that accept every declared type would get it.
            content = {"application/json": {"schema": output}}
            if output == {}:
                content["*/*"] = {}  # an operation without an output schema may return something else than JSON
        responses: Json = {"200": {"description": "The result.", "headers": _RESPONSE_HEADERS, "content": content}}
        for status, definitions in _by_status(spec.error_schemas).items():
            responses[str(status)] = self._declared(definitions)
        responses["4XX"] = {"$ref": "#/components/responses/Problem"}
        responses["5XX"] = {"$ref": "#/components/responses/Problem"}
        return responses

    def _mark(self, spec: OperationSpec) -> Json:
        """Return the extension ``x-operad`` of an operation, from which another operad loads it."""
        mark: Json = {"id": spec.id, "type": str(spec.type), "version": spec.version}
        if spec.idempotent:
            mark["idempotent"] = True
        if spec.tags:
            mark["tags"] = list(spec.tags)
        if not spec.access_control.is_open:
            mark["accessControl"] = spec.to_wire(schemas=False)["accessControl"]
        if spec.error_schemas:
            mark["errors"] = [self._error(definition) for definition in spec.error_schemas]
        return mark

    def _error(self, definition: ErrorDefinition) -> Json:
        mark: Json = {"code": definition.code, "description": definition.description}
        schema = self._plain(definition.schema.bundled(self._shared))
        if schema != {}:
            mark["schema"] = schema
        if definition.http_status is not None:
            mark["httpStatus"] = definition.http_status
        return mark

    def _declared(self, definitions: Sequence[ErrorDefinition]) -> Json:
        """Return the response for the declared errors of one status, which undeclared errors may have, too."""
        texts = [definition.description or definition.code for definition in definitions]
        return _problem_response("; ".join(texts), {"$ref": COMPONENTS + _PROBLEM_NAME})


def _joined(members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the JSON object of members whose values are JSON already."""
    return b"{" + b",".join(to_json(name) + b":" + value for name, value in members) + b"}"


def _with_own_titles(definitions: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield definitions with distinct titles, because generators name classes by them.

    A title that occurred before is replaced by the name of the definition.
    """
    seen = set()
    for name, schema in definitions:
        title = schema.get("title") if isinstance(schema, dict) else None
        yield name, {**schema, "title": name} if title in seen and title is not None else schema
        seen.add(title)


def _by_status(definitions: Sequence[ErrorDefinition]) -> dict[int, list[ErrorDefinition]]:
    found: dict[int, list[ErrorDefinition]] = {}
    for definition in definitions:
        status = definition.http_status
        # The status of an upstream's error is not declared: its 5xx become 502, its 4xx are kept.
        if status is not None and 400 <= status < 600 and definition.code != ErrorCode.EXECUTION_ERROR:
            found.setdefault(status, []).append(definition)
    return found


def _problem_response(description: str, schema: Json) -> Json:
    return {"description": description, "content": {PROBLEM_TYPE: {"schema": schema}}}


def _event(item: Any) -> Json:
    """Return the schema of an event of a stream: an item, or one of the final events."""
    return {"anyOf": [_json_event(item), {"$ref": COMPONENTS + _END_NAME}, {"$ref": COMPONENTS + _FAILURE_NAME}]}


def _json_event(content: Any, name: str | None = None) -> Json:
    """Return the schema of an event whose data are JSON text, in the form of OpenAPI 3.2. OpenAPI 3.1 has none."""
    properties: Json = {
        "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": content},
        "event": {"type": "string"} if name is None else {"const": name},
    }
    if name is None:
        properties["id"] = {"type": "string"}
    return {
        "type": "object",
        "required": ["data"] if name is None else ["data", "event"],
        "properties": properties,
    }


def _needs_body(spec: OperationSpec, schema: Any) -> bool:
    """Return True if the input of a call without a body, an empty object, is not valid."""
    if isinstance(schema, dict) and schema.keys() <= {"type", "properties", "required", "additionalProperties"}:
        return bool(schema.get("required")) or schema.get("type", "object") != "object"
    return not spec.input_schema.is_valid({})
