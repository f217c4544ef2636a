"""The operations of a document, which are listed when it is loaded and planned when they are first used."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, SupportsIndex

import attrs

from operad import Operation, OperationContext, OperationSpec, OperationType
from operad_openapi._checks import check_document, check_names, warnings_of
from operad_openapi._circle import ServedOperation, is_operads, mark_of
from operad_openapi._document.contents import success_media, success_responses
from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import Diagnostic, NotUsableError, RawOperation, list_operations
from operad_openapi._document.mediatypes import EVENT_STREAM, JSON, STREAM_TYPES, essence
from operad_openapi._document.naming import Filters, Names, Naming, first_fitting
from operad_openapi._document.parameters import unusable
from operad_openapi._document.pruning import pruned, without_siblings
from operad_openapi._document.relations import callbacks_of, links_of, webhooks_of
from operad_openapi._http.client import HTTPClient
from operad_openapi._operation import DocumentOperation
from operad_openapi._paging import DocumentPages
from operad_openapi._request.text import SerializationError
from operad_openapi._request.validating import InputSchema
from operad_openapi._source import DocumentSource
from operad_openapi.config import HTTPServiceConfig
from operad_schema import lazy_schema

AnyOperation = Operation[..., Any]
logger = logging.getLogger("operad.openapi")


class OpenAPIOperations(list[AnyOperation]):
    """A list of the operations of a document, with the HTTP session that they share.

    Close it (``async with``, or `aclose`) after the last call of its operations. A registry closes the
    operations of its own sources.
    """

    def __init__(self, source: DocumentSource, diagnostics: list[Diagnostic]) -> None:
        super().__init__()
        self._source = source
        self.built: dict[str, DocumentOperation] = {}
        """Name of an operation -> the object that sends its requests."""
        source.operations = self.built
        self.diagnostics = diagnostics
        """The problems that were found while the document was loaded."""
        self.webhooks = webhooks_of(source.document)
        """The document's webhooks: ``name``, ``method``, ``pointer``; ``operationId``, ``summary`` if declared."""

    @property
    def info(self) -> Json:
        """The object ``info`` of the document, with ``title`` and ``version``; ``{}`` if it is missing."""
        found = self._source.document.root.get("info")
        return found if isinstance(found, dict) else {}

    @property
    def client(self) -> HTTPClient:
        """The HTTP client that sends the requests of the operations."""
        return self._source.client

    def download(
        self, name: str, input: Mapping[str, Any] | None = None, context: OperationContext | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Return an iterator over the body of an operation's response, for bodies that are too large for memory.

        Args:
            name: the operation's name, without the namespace.
            input: the input; neither the caller's access nor the schema is checked.
            context: the context of the call, or ``None``.

        Raises:
            KeyError: the operation does not exist.
            CallError: the request fails; raised while iterating.
        """
        return self.built[name].chunks(dict(input or {}), context)

    async def aclose(self) -> None:
        """Close the HTTP session; idempotent."""
        await self._source.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        # Not the operations: asyncio.run itself formats its result for a message.
        return f"<OpenAPIOperations {self._source.config.namespace!r}: {len(self)}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError("OpenAPIOperations cannot be pickled, because it has connections; load the document again")


def build_operations(
    document: Document, config: HTTPServiceConfig, found: Iterable[Diagnostic] = ()
) -> OpenAPIOperations:
    """Return the operations of ``document`` that can be used; ``diagnostics`` of the list reports the other ones.

    Args:
        document: the document.
        config: the server, and options for its calls.
        found: the diagnostics from loading the document.

    Raises:
        ConfigError: the configuration does not fit the document: for example, it names an unknown operation.
    """
    source = DocumentSource(document, config)
    diagnostics = list(found)
    operations = OpenAPIOperations(source, diagnostics)
    filters, names = Filters(config.include, config.exclude), Names()
    checker = _Checker(document)
    check_document(document, config)
    naming = Naming(config.names)
    listed: list[RawOperation] = []
    chosen: list[RawOperation] = []
    is_marked = is_operads(document)
    for raw in list_operations(document):
        if isinstance(raw, Diagnostic):
            diagnostics.append(raw)
            continue
        mark = mark_of(raw) if is_marked else None
        if is_marked and mark is None:  # another way to call what has a mark
            continue
        # Claimed by all, wanted or not: a filter must not change the ids of what it lets through.
        name = names.claim(naming.of(raw) if mark is None else mark["id"])
        listed.append(raw)
        streams = _streams(document, raw)
        twin = names.claim(f"{name}_stream") if streams.has_twin else ""
        if not filters.admits(name, raw):
            continue
        try:
            checker.check(raw, diagnostics)
            if streams.media_type is None and first_fitting(config.operation_types, name) == "subscription":
                streams = _UNTOLD._replace(media_type=JSON)
            made = _built(source, raw, streams, twin) if mark is None else [ServedOperation(source, raw, mark)]
            for built in made:
                claimed = twin if built.is_twin else name
                operations.append(_operation(built, claimed))
                operations.built[claimed] = built
            chosen.append(raw)
        except (NotUsableError, PointerError, SerializationError) as error:
            diagnostics.append(Diagnostic(raw.pointer, str(error)))
    filters.check(names.claimed)
    naming.check(listed)
    check_names(config, names.claimed, listed)
    diagnostics.extend(warnings_of(document, config, source.authenticator, chosen))
    if config.include or config.exclude:
        _prune(source, operations.built.values())
    for diagnostic in diagnostics:
        logger.warning("%s: %s", config.namespace, diagnostic)
    return operations


class _Streams(NamedTuple):
    """The streams with which an operation responds."""

    media_type: str | None
    """The media type of the stream, or ``None``."""
    has_twin: bool
    """Whether the operation also responds without a stream."""
    is_untold: bool = False
    """Whether the document does not describe the responses, so that they could be streams."""


_TOLD = _Streams(None, has_twin=False)
_UNTOLD = _Streams(None, has_twin=False, is_untold=True)
_ANYTHING: tuple[Any, ...] = ({}, True)


def _streams(document: Document, raw: RawOperation) -> _Streams:
    media = success_media(document, raw)
    streams = [essence(media_type) for _, media_type, _ in media if essence(media_type) in STREAM_TYPES]
    if not streams:
        if (found := _json_streams(raw, media)) is not None:
            return found
        if raw.method not in ("GET", "POST") or any(
            item.get("schema", True) not in _ANYTHING for *_, item in media
        ):
            return _TOLD
        return _UNTOLD if any(str(status) != "204" for status, _ in success_responses(raw)) else _TOLD
    return _Streams(EVENT_STREAM if EVENT_STREAM in streams else streams[0], len(streams) != len(media))


def _json_streams(raw: RawOperation, media: list[tuple[str, str, Json]]) -> _Streams | None:
    """Return how an operation streams JSON values as ``application/json``; ``None`` if the document shows no sign.

    grpc-gateway marks the schema of such a response; Kubernetes marks the action or the media type.
    """
    for _, media_type, item in media:
        schema = item.get("schema")
        if isinstance(schema, dict) and (
            str(schema.get("$ref", "")).startswith("#/x-stream-definitions/")
            or str(schema.get("title", "")).startswith("Stream result of ")
        ):
            return _Streams(JSON, has_twin=False)
        if "stream=watch" in media_type or raw.node.get("x-kubernetes-action") in _WATCHING:
            return _Streams(JSON, raw.node.get("x-kubernetes-action") not in _WATCHING)
    return None


_WATCHING = ("watch", "watchlist")


def _built(source: DocumentSource, raw: RawOperation, streams: _Streams, twin: str) -> list[DocumentOperation]:
    """Return the operation, and its streaming twin if it responds both ways."""
    if not streams.has_twin:
        return [DocumentOperation(source, raw, streams.media_type, may_stream=streams.is_untold)]
    return [
        DocumentOperation(source, raw, None, twin=f"{source.config.namespace}.{twin}"),
        DocumentOperation(source, raw, streams.media_type, is_twin=True),
    ]


def _operation(built: DocumentOperation, name: str) -> AnyOperation:
    raw, config, node = built.raw, built.source.config, built.raw.node
    metadata = _metadata(built.source.document, raw)
    built.links = metadata.get("links")
    if isinstance(built, ServedOperation):
        kind = built.kind
    elif built.stream_type is not None:
        kind = OperationType.SUBSCRIPTION
    elif (configured := first_fitting(config.operation_types, name)) is not None:
        kind = OperationType(configured)
    else:
        kind = OperationType.QUERY if raw.method == "GET" else OperationType.MUTATION
    summary, description = node.get("summary"), node.get("description")
    tags = node.get("tags")
    spec = OperationSpec(
        namespace=config.namespace,
        name=name,
        type=kind,
        # HTTP defines these methods as idempotent, and retries rely on it as well.
        idempotent=kind is OperationType.MUTATION
        and (raw.method in ("HEAD", "PUT", "DELETE") or getattr(built, "is_idempotent", False)),
        title=summary if isinstance(summary, str) and summary else None,
        description=description if isinstance(description, str) and description else str(summary or ""),
        input_schema=InputSchema(built.input_schema, config.validate_inputs, built.report_input, built.hint),
        output_schema=lazy_schema(built.output_schema),
        error_schemas=built.error_schemas,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        deprecated=node.get("deprecated") is True,
        metadata=metadata,
    )
    rule = None
    if config.pagination:
        rule = first_fitting(config.pagination, name)
    return Operation(
        spec,
        built.handler,
        adapt=built.adapt,
        stream=built.stream if built.may_stream else None,
        pages=DocumentPages(built, name, rule),
        chunks=built.pieces,
    )


def _metadata(document: Document, raw: RawOperation) -> Json:
    metadata: Json = {"operationId": raw.node.get("operationId"), "method": raw.method, "path": raw.path}
    if links := links_of(document, raw):
        metadata["links"] = links
    if callbacks := callbacks_of(document, raw):
        metadata["callbacks"] = callbacks
    return metadata


def _prune(source: DocumentSource, chosen: Iterable[DocumentOperation]) -> None:
    """Release the parts of the document that the chosen operations do not refer to."""
    chosen = list(chosen)
    root = pruned(source.document, [operation.raw for operation in chosen])
    items: dict[int, Json] = {}
    for operation in chosen:
        item = items.setdefault(id(operation.raw.item), without_siblings(operation.raw))
        operation.raw = attrs.evolve(operation.raw, item=item)
    source.keep(root)


class _Checker:
    """A check that the parts that an operation needs for every request exist; shared parts are checked once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._seen: dict[str, Json] = {}
        """Parameters by their reference."""

    def check(self, raw: RawOperation, diagnostics: list[Diagnostic]) -> None:
        """Check the parameters and the body of an operation, and add warnings to ``diagnostics``.

        Raises:
            NotUsableError: a required parameter cannot be sent, or a parameter has no name or location.
            PointerError: a reference has no target, or references lead in a circle.
        """
        declared: set[str] = set()
        for holder in (raw.item, raw.node):
            parameters = holder.get("parameters")
            for parameter in parameters if isinstance(parameters, list) else ():
                node = self._parameter(parameter)
                place = node["in"]
                if place == "path":
                    declared.add(node["name"])
                elif place != "query" and (
                    reason := unusable(node["name"], place)
                ):  # any name can stand in a query
                    if node.get("required") is True:
                        raise NotUsableError(reason)
                    diagnostics.append(Diagnostic(raw.pointer, f"{reason}; it is left out", "warning"))
        body = raw.node.get("requestBody")
        if isinstance(body, dict) and "$ref" in body:
            self._document.resolve(body)
        placeholders = raw.placeholders
        for name in declared.difference(placeholders):
            reason = f'the path has no placeholder "{{{name}}}" for this parameter, which is left out'
            diagnostics.append(Diagnostic(raw.pointer, reason, "warning"))
        for name in placeholders:
            if name not in declared:
                reason = f'the path has a placeholder "{name}" that is not declared; its value is a string'
                diagnostics.append(Diagnostic(raw.pointer, reason, "warning"))

    def _parameter(self, parameter: Any) -> Json:
        reference = parameter.get("$ref") if isinstance(parameter, dict) else None
        if reference is not None and isinstance(reference, str):
            if reference not in self._seen:
                self._seen[reference] = self._usable(self._document.resolve(parameter))
            return self._seen[reference]
        return self._usable(parameter)

    def _usable(self, node: Any) -> Json:
        if isinstance(node, dict) and isinstance(node.get("name"), str) and isinstance(node.get("in"), str):
            return node
        got = f"one with {', '.join(map(str, node))[:100]}" if isinstance(node, dict) else type(node).__name__
        raise NotUsableError(f'expected a parameter with "name" and "in" as text, got {got}')
