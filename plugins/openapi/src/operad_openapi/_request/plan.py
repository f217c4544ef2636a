"""The plan of an operation's requests: the parts that do not depend on the input, computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from operad_openapi._document.contents import Body, body_of, success_media
from operad_openapi._document.document import Document, PointerError
from operad_openapi._document.listing import NotUsableError, RawOperation
from operad_openapi._document.mediatypes import STREAM_TYPES, essence, is_json
from operad_openapi._document.naming import first_fitting
from operad_openapi._document.origins import origin_of
from operad_openapi._document.parameters import Parameter, is_reserved_header, is_token, parameters_of
from operad_openapi._document.schemas import SchemaView
from operad_openapi._document.security import Key, key_of, key_parameters
from operad_openapi._document.servers import Server, home_origins, server_of
from operad_openapi._request.bodies import BodyPlan, plan_body
from operad_openapi._request.inputs import MISSING, Configured, Inputs, plan_inputs
from operad_openapi._request.paths import PathTemplate
from operad_openapi._request.request import EncodedBody, Request
from operad_openapi._request.styles import extra_pairs
from operad_openapi._request.text import SerializationError, check_cookie_text, check_header_value, text_of
from operad_openapi.config import HTTPServiceConfig

if TYPE_CHECKING:
    from multidict import CIMultiDict

_ENCODINGS = ("gzip", "deflate", "identity")
"""The content encodings that are always supported, the best first."""


@attrs.frozen(eq=False, repr=False)
class Plan:
    """The parts of an operation's requests that do not depend on the input."""

    method: str
    inputs: Inputs
    template: PathTemplate
    body: BodyPlan | None
    headers: CIMultiDict[str]
    """The headers of every request: ``Accept``, and the configured headers and cookies if `is_home`."""
    server_or_error: Server | NotUsableError
    is_home: bool
    """Whether requests go to the API's own origins, to which configured headers and credentials may be sent."""
    query: str = ""
    """The query of the server, and configured query parameters that the document does not declare; encoded."""
    expects_json: bool = False
    """Whether all declared media types of successful responses are JSON."""
    stream_field: str | None = None
    """The field of the body, or the query parameter, that asks for a stream; ``None`` if none is declared."""
    required_keys: frozenset[Key] = frozenset()
    """API keys of security schemes that are also required parameters."""

    @property
    def server(self) -> str:
        """The base URL. Raises `NotUsableError` if no usable server is known, even if the schemas can be used."""
        server = self.server_or_error
        if isinstance(server, Server):
            return server.url
        raise NotUsableError(str(server))

    def with_stream(self, input: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``input`` with `stream_field`, in the query or in the body, set to True."""
        if self.inputs.body_key is None:
            return {**input, str(self.stream_field): True}
        body = input.get(self.inputs.body_key)
        if body is not None and not isinstance(body, Mapping):
            return input
        return {**input, self.inputs.body_key: {**(body or {}), str(self.stream_field): True}}

    def request(self, input: Any, stream_type: str | None = None) -> Request:
        """Return the request for ``input``, without credentials.

        ``stream_type`` is the value of ``Accept`` for a stream; if ``None``, the plan's own is sent.

        Raises:
            SerializationError: a value is missing, unknown or cannot be encoded; the message names it.
            NotUsableError: no usable server is known.
        """
        # Asking for the class first spares a dict the far slower question whether it is a Mapping.
        if input.__class__ is not dict and not isinstance(input, Mapping):
            raise SerializationError(f"expected an object of parameters, got {type(input).__name__}")
        inputs, template = self.inputs, self.template
        if not input.keys() <= inputs.keys:
            unknown = input.keys() - inputs.keys
            known = ", ".join(sorted(map(str, inputs.keys))) or "none"
            names = ("parameter " if len(unknown) == 1 else "parameters ") + ", ".join(sorted(map(repr, unknown)))
            raise SerializationError(f"unknown {names}; expected: {known}")
        paths: dict[str, str] = {}
        query = template.query
        headers = self.headers.copy()
        cookies: list[str] = []
        for key, name, location, encode, is_required, fallback in inputs.slots:
            value = input.get(key)
            try:
                text = fallback if value is None else encode(value)
            except SerializationError as error:
                raise SerializationError(f"{key}: {error}") from error
            if text is None:
                if is_required:
                    got = f"got {value!r:.60}" if key in input else "got none"
                    raise SerializationError(f"{key}: required; expected a value that is not null or empty, {got}")
            elif location == "path":
                paths[name] = text
            elif location == "header":
                headers[name] = text
            elif location == "cookie":
                cookies.append(text)
            else:
                query = f"{query}&{text}" if query else text
        url = self.server + template.fill(paths)
        if self.query:
            query = f"{query}&{self.query}" if query else self.query
        if inputs.extras:
            self._add_headers(input, headers)
            query = "&".join(filter(None, [query, *self._extra_query(input)]))
        if query:
            url = f"{url}?{query}"
        if stream_type is not None:
            headers["Accept"] = stream_type
        return Request(self.method, url, headers, cookies, None if self.body is None else self._body(input))

    def _extra_query(self, input: Mapping[str, Any]) -> list[str]:
        added = self.inputs.added("query", input)
        return [pair for name, value in added.items() for pair in extra_pairs(str(name), value)]

    def _add_headers(self, input: Mapping[str, Any], headers: CIMultiDict[str]) -> None:
        for name, value in self.inputs.added("headers", input).items():
            if not is_token(name) or is_reserved_header(name):
                key = self.inputs.extras["headers"]
                raise SerializationError(f"{key}: the header {name!r} cannot be set: it is reserved or invalid")
            headers[name] = check_header_value(text_of(value))

    def _body(self, input: Mapping[str, Any]) -> EncodedBody | None:
        plan = self.body
        assert plan is not None
        value = self.inputs.body(input)
        if more := self.inputs.added("body", input):
            if value is not MISSING and not isinstance(value, Mapping):
                key = self.inputs.extras["body"]
                raise SerializationError(
                    f"{key}: fields can be added to an object only, but the body is of type {type(value).__name__}"
                )
            value = {**({} if value is MISSING else value), **more}
        if value is MISSING:
            if not plan.required:
                return None
            if self.inputs.body_key is not None:
                raise SerializationError(f"{self.inputs.body_key}: expected a body, which is required, got none")
            value = {}
        try:
            return plan.encode(value)
        except SerializationError as error:
            raise SerializationError(f"{self.inputs.body_key or 'body'}: {error}") from error


def build_plan(
    document: Document,
    raw: RawOperation,
    config: HTTPServiceConfig,
    view: SchemaView,
    sent: Callable[[RawOperation, Collection[Key]], Collection[Key]],
) -> Plan:
    """Return the plan of an operation.

    Args:
        document: the document.
        raw: the operation.
        config: the configuration of the source.
        view: the schemas of requests.
        sent: returns the API keys that credentials send, given the operation and its required API keys.

    Raises:
        NotUsableError, PointerError, SerializationError: no request can be made from the document.
    """
    from multidict import CIMultiDict

    template = PathTemplate(raw.path, config.slashes)
    server = _server(document, raw, config)
    home = home_origins(document, config, trusted=config.trusted)
    is_home = isinstance(server, Server) and not home.isdisjoint({origin_of(server.url), server.declared_origin})
    parameters, swagger_body = parameters_of(document, raw)
    keys = key_parameters(document, raw)
    required = frozenset(key for p in parameters if p.required and (key := key_of(p.location, p.name)) in keys)
    # A key comes from the configuration, unless the document requires one that the chosen credentials do not send.
    kept = required.difference(sent(raw, required) if is_home else ()) if required else required
    parameters = [p for p in parameters if (key := key_of(p.location, p.name)) not in keys or key in kept]
    parameters = _placed(parameters, template)
    if config.slashes:
        parameters = [
            attrs.evolve(p, keeps_slashes=True) if p.location == "path" and p.name in config.slashes else p
            for p in parameters
        ]
    body = body_of(document, raw, swagger_body)
    if body is None and "body" in config.extras and raw.method not in ("GET", "HEAD"):
        body = Body({"application/json": {"schema": {"type": "object"}}}, required=False)
    body_plan = None if body is None else plan_body(body, view, _media_types(config, raw), config.upload_root)
    configured = _configured(config) if is_home else Configured({}, config.extras)
    inputs = plan_inputs(parameters, body_plan, view, configured)
    headers = CIMultiDict({"Accept": _accept(document, raw), **_encoding(parameters, view)})
    query = ""
    if is_home:
        assert isinstance(server, Server)
        headers.update(config.headers)
        _add_cookies(headers, config, inputs)
        named = {slot.name for slot in inputs.slots if slot.location == "query"}
        pairs = [p for name, value in config.query.items() if name not in named for p in extra_pairs(name, value)]
        query = "&".join(filter(None, [server.query, *pairs]))
    stream_field = _stream_field(body_plan, inputs, view)
    kinds = [essence(media_type) for _, media_type, _ in success_media(document, raw)]
    expects_json = bool(kinds) and all(map(is_json, kinds))
    return Plan(
        raw.method,
        inputs,
        template,
        body_plan,
        headers,
        server,
        is_home,
        query,
        expects_json,
        stream_field,
        required,
    )


def _placed(parameters: list[Parameter], template: PathTemplate) -> list[Parameter]:
    """Return the parameters that have a place in the request, and a parameter for each undeclared placeholder."""
    declared = {parameter.name for parameter in parameters if parameter.location == "path"}
    placed = [p for p in parameters if p.location != "path" or p.name in template.names]
    missing = [name for name in template.names if name not in declared]
    return placed + [Parameter(name, "path", {"type": "string"}, required=True) for name in missing]


def _server(document: Document, raw: RawOperation, config: HTTPServiceConfig) -> Server | NotUsableError:
    from yarl import URL

    try:
        server = server_of(document, raw, config, trusted=config.trusted)
        return attrs.evolve(server, url=str(URL(server.url)).rstrip("/"))
    except NotUsableError as error:
        return error
    except ValueError as error:
        return NotUsableError(f"servers: {error}")


def _media_types(config: HTTPServiceConfig, raw: RawOperation) -> list[str]:
    """Return the configured media types to prefer for the operation's body."""
    if isinstance(config.media_types, list):
        return config.media_types
    names = (str(raw.node.get("operationId", "")), f"{raw.method} {raw.path}")
    return first_fitting(config.media_types, *names) or []


def _configured(config: HTTPServiceConfig) -> Configured:
    headers = {name.lower(): value for name, value in config.headers.items()}
    values = {
        "path": config.path_parameters,
        "query": config.query,
        "header": headers,
        "cookie": config.cookies,
    }
    return Configured(values, config.extras)


def _add_cookies(headers: CIMultiDict[str], config: HTTPServiceConfig, inputs: Inputs) -> None:
    """Put the configured cookies that are not parameters into the header, after the configured header."""
    named = {slot.name for slot in inputs.slots if slot.location == "cookie"}
    cookies = [headers["Cookie"]] if "Cookie" in headers else []
    for name, value in config.cookies.items():
        if name not in named:
            cookies.append(f"{check_cookie_text(name)}={check_cookie_text(value)}")
    if cookies:
        headers["Cookie"] = "; ".join(cookies)


def _stream_field(body: BodyPlan | None, inputs: Inputs, view: SchemaView) -> str | None:
    if body is None:
        return next(
            (key for key, parameter in inputs.query.items() if parameter.name in ("stream", "watch")), None
        )
    if not is_json(essence(body.media_type)):
        return None
    if inputs.body_fields is not None:
        return "stream" if "stream" in inputs.body_fields else None
    try:
        schema = view.resolve(body.schema)
    except PointerError:
        return None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return "stream" if isinstance(properties, dict) and "stream" in properties else None


def _encoding(parameters: list[Parameter], view: SchemaView) -> dict[str, str]:
    """Return the header ``Accept-Encoding`` if the document declares its values, as aiohttp would send a list."""
    for parameter in parameters:
        if key_of(parameter.location, parameter.name) == ("header", "accept-encoding"):
            try:
                schema = view.resolve(parameter.schema)
            except PointerError:
                return {}
            values = schema.get("enum") if isinstance(schema, dict) else None
            if isinstance(values, list):
                return next(({parameter.name: value} for value in _ENCODINGS if value in values), {})
    return {}


def _accept(document: Document, raw: RawOperation) -> str:
    """Return the header ``Accept``: the declared media types of 2xx responses, JSON first."""
    declared = dict.fromkeys(
        essence(media_type)
        for _, media_type, _ in success_media(document, raw)
        if essence(media_type) not in STREAM_TYPES
    )
    ranked = sorted(declared, key=lambda kind: (not is_json(kind), kind == "*/*"))
    return ", ".join(ranked) if ranked else "application/json, */*;q=0.8"
