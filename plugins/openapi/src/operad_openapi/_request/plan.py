"""How the requests of one operation are made: everything that does not depend on the input, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from operad_openapi._document.contents import body_of, success_media
from operad_openapi._document.document import Document, PointerError
from operad_openapi._document.listing import NotUsableError, RawOperation
from operad_openapi._document.mediatypes import STREAM_TYPES, essence, is_json
from operad_openapi._document.origins import origin_of
from operad_openapi._document.parameters import Parameter, parameters_of
from operad_openapi._document.schemas import SchemaView
from operad_openapi._document.security import key_parameters
from operad_openapi._document.servers import server_url
from operad_openapi._request.bodies import BodyPlan, plan_body
from operad_openapi._request.inputs import MISSING, Inputs, plan_inputs
from operad_openapi._request.paths import PathTemplate
from operad_openapi._request.request import EncodedBody, Request
from operad_openapi._request.text import SerializationError
from operad_openapi.config import HTTPServiceConfig

if TYPE_CHECKING:
    from multidict import CIMultiDict


@attrs.frozen(eq=False)
class Plan:
    """The unchanging part of an operation's requests."""

    method: str
    inputs: Inputs
    template: PathTemplate
    body: BodyPlan | None
    headers: CIMultiDict[str]
    """What every request starts with: what it accepts."""
    server_or_error: str | NotUsableError
    home: str
    """The origin of the API, which credentials are for."""
    stream_field: str | None = None
    """The field of the body that asks for a stream, if it declares one."""

    @property
    def server(self) -> str:
        """The base URL. Raises `NotUsableError` where the document has none: without it, schemas still work."""
        server = self.server_or_error
        if isinstance(server, str):
            return server
        raise NotUsableError(str(server))

    def with_stream(self, input: Mapping[str, Any]) -> Mapping[str, Any]:
        """``input`` that asks for a stream."""
        if self.inputs.body_key is None:
            return {**input, str(self.stream_field): True}
        body = input.get(self.inputs.body_key)
        if body is not None and not isinstance(body, Mapping):
            return input
        return {**input, self.inputs.body_key: {**(body or {}), str(self.stream_field): True}}

    def request(self, input: Any, stream_type: str | None = None) -> Request:
        """The request for ``input``, without credentials.

        Raises:
            SerializationError: the input has no request; the message names the field.
        """
        # Asking for the class first spares a dict the far slower question whether it is a Mapping.
        if input.__class__ is not dict and not isinstance(input, Mapping):
            raise SerializationError(f"expected an object of parameters, got {type(input).__name__}")
        inputs, template = self.inputs, self.template
        if not input.keys() <= inputs.keys:
            unknown = input.keys() - inputs.keys
            known = ", ".join(sorted(inputs.keys)) or "none"
            raise SerializationError(f"unknown parameter {', '.join(sorted(map(repr, unknown)))}; known: {known}")
        paths: dict[str, str] = {}
        query = template.query
        headers = self.headers.copy()
        cookies: list[str] = []
        for key, name, location, encode, is_required in inputs.slots:
            value = input.get(key)
            try:
                text = None if value is None else encode(value)
            except SerializationError as error:
                raise SerializationError(f"{key}: {error}") from error
            if text is None:
                if is_required:
                    raise SerializationError(f"{key}: a value is required, and null and empty ones are none")
            elif location == "path":
                paths[name] = text
            elif location == "header":
                headers[name] = text
            elif location == "cookie":
                cookies.append(text)
            else:
                query = f"{query}&{text}" if query else text
        url = self.server + template.fill(paths)
        if query:
            url = f"{url}?{query}"
        if stream_type is not None:
            headers["Accept"] = stream_type
        return Request(self.method, url, headers, cookies, None if self.body is None else self._body(input))

    def _body(self, input: Mapping[str, Any]) -> EncodedBody | None:
        plan = self.body
        assert plan is not None
        value = self.inputs.body(input)
        if value is MISSING:
            if not plan.required:
                return None
            if self.inputs.body_key is not None:
                raise SerializationError(f"{self.inputs.body_key}: the request needs a body")
            value = {}
        try:
            return plan.encode(value)
        except SerializationError as error:
            raise SerializationError(f"{self.inputs.body_key or 'body'}: {error}") from error


def build_plan(document: Document, raw: RawOperation, config: HTTPServiceConfig, view: SchemaView) -> Plan:
    """The plan of an operation. Raises `NotUsableError`, `PointerError`, `SerializationError`."""
    from multidict import CIMultiDict
    from yarl import URL

    parameters, swagger_body = parameters_of(document, raw)
    template = PathTemplate(raw.path)
    declared = {parameter.name for parameter in parameters if parameter.location == "path"}
    # A credential comes from the configuration, even where the document lists it among the parameters.
    keys = key_parameters(document, raw)
    parameters = [
        p for p in parameters if (p.location, p.name.lower() if p.location == "header" else p.name) not in keys
    ]
    # A path parameter without a placeholder has no place to go to.
    parameters = [p for p in parameters if p.location != "path" or p.name in template.names]
    parameters += [
        Parameter(name, "path", {"type": "string"}, required=True)
        for name in template.names
        if name not in declared
    ]
    body = body_of(document, raw, swagger_body)
    body_plan = None if body is None else plan_body(body, view, config.media_types, config.upload_root)
    inputs = plan_inputs(parameters, body_plan, view)
    server: str | NotUsableError
    home = origin_of(config.base_url) if config.base_url is not None else ""
    try:
        server = str(URL(server_url(document, raw, config, trusted=config.trusted))).rstrip("/")
    except NotUsableError as error:
        server = error
    except ValueError as error:
        server = NotUsableError(f"servers: {error}")
    if not home:
        home = _root_origin(document, raw, config)
    return Plan(
        raw.method,
        inputs,
        template,
        body_plan,
        CIMultiDict({"Accept": _accept(document, raw)}),
        server,
        home,
        _stream_field(body_plan, inputs, view),
    )


def _root_origin(document: Document, raw: RawOperation, config: HTTPServiceConfig) -> str:
    """The origin of the document's root server: what credentials without a ``base_url`` are for."""
    root = attrs.evolve(raw, item={}, node={})
    try:
        return origin_of(server_url(document, root, config, trusted=config.trusted))
    except NotUsableError:
        return ""


def _stream_field(body: BodyPlan | None, inputs: Inputs, view: SchemaView) -> str | None:
    if body is None or not is_json(essence(body.media_type)):
        return None
    if inputs.body_fields is not None:
        return "stream" if "stream" in inputs.body_fields else None
    try:
        schema = view.resolve(body.schema)
    except PointerError:
        return None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return "stream" if isinstance(properties, dict) and "stream" in properties else None


def _accept(document: Document, raw: RawOperation) -> str:
    """The declared media types of success, JSON first."""
    declared = dict.fromkeys(
        essence(media_type)
        for _, media_type, _ in success_media(document, raw)
        if essence(media_type) not in STREAM_TYPES
    )
    ranked = sorted(declared, key=lambda kind: (not is_json(kind), kind == "*/*"))
    return ", ".join(ranked) if ranked else "application/json, */*;q=0.8"
