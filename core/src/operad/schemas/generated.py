"""Checks that fastjsonschema generates, from a draft-7 form that holds nothing but what it gets right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from operad.schemas.limits import Limits
from operad.schemas.nodes import Body, Node
from operad.schemas.patterns import Pattern

_INLINE_DEPTH = 5


class UnsupportedError(Exception):
    """Generated code does not take this schema; the message says why."""


_SAME = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
         "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties")  # fmt: skip
_ANNOTATES = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")


class _FastForm:
    """The draft-7 form of a schema and what it reaches. Schemas nested beyond `_INLINE_DEPTH` become
    definitions, because the generated code nests with them and Python refuses 20 nested blocks."""

    def __init__(self, patterns: Mapping[str, Pattern], limits: Limits) -> None:
        self.limits = limits
        self.patterns = patterns
        self.definitions: dict[str, Any] = {}
        self.count = 0

    def document(self, root: Body) -> dict[str, Any]:
        """The form of `root`, as fastjsonschema wants a whole one."""
        form = self.schema(root, 0)
        document = {"allOf": [form]} if "$ref" in form else dict(form)
        document["definitions"] = self.definitions
        document["$schema"] = "http://json-schema.org/draft-07/schema#"
        return document

    def schema(self, body: Body, depth: int) -> Any:
        self.count += 1
        if self.count > self.limits.max_generated:
            raise UnsupportedError(f"more than {self.limits.max_generated} schemas")
        if isinstance(body, bool):
            return body
        if depth > _INLINE_DEPTH:
            return self.define(f"x{self.count}", body)
        out = {key: body[key] for key in _SAME if key in body}
        self.values(body, out)
        self.objects(body, out, depth + 1)
        self.arrays(body, out, depth + 1)
        self.unions(body, out, depth + 1)
        if body.ref is not None:
            if body.ref.is_heavy:
                why = "a schema that recurses, which generated code would follow without remembering"
                raise UnsupportedError(why)
            ref = self.define(body.ref.name, body.ref.body)
            if not out:
                return ref
            out["allOf"] = [ref, *out.get("allOf", [])]
        return out

    def define(self, name: str, body: Body) -> dict[str, str]:
        if name not in self.definitions:
            self.definitions[name] = True  # taken: the schema may refer to itself
            self.definitions[name] = self.schema(body, 0)
        return {"$ref": f"#/definitions/{name}"}

    def values(self, body: Node, out: dict[str, Any]) -> None:
        if "multipleOf" in body:
            raise UnsupportedError("multipleOf, which it computes in floating point")
        if "pattern" in body and not self.patterns[body["pattern"]].is_cheap:
            raise UnsupportedError("a pattern whose work is counted")
        if "const" in body and "enum" in body:
            raise UnsupportedError("const beside enum")
        values = [body["const"]] if "const" in body else body.get("enum")
        if values is not None:
            if any(_holds_object(value) for value in values):
                # Its resolver would take a "$ref" or "$id" inside such a value for its own.
                raise UnsupportedError("an object in enum or const")
            out["enum"] = values

    def objects(self, body: Node, out: dict[str, Any], depth: int) -> None:
        for key in ("properties", "patternProperties"):
            if key in body:
                out[key] = {name: self.schema(node, depth) for name, node in body[key].items()}
        rest = self.rest(body, "additionalProperties", "unevaluatedProperties")
        if rest is not None and rest is not True:
            out["additionalProperties"] = self.schema(rest, depth)
        if "propertyNames" in body:
            out["propertyNames"] = self.schema(body["propertyNames"], depth)
        if "required" in body:
            if out.get("additionalProperties") is False and not set(body["required"]) <= set(
                out.get("properties", ())
            ):
                # It refuses to compile this apart from each other; it is merely never satisfied.
                out["allOf"] = [{"required": body["required"]}]
            else:
                out["required"] = body["required"]
        self.dependencies(body, out, depth)

    def dependencies(self, body: Node, out: dict[str, Any], depth: int) -> None:
        needs = dict(body.get("dependentRequired", {}))
        for name, node in body.get("dependentSchemas", {}).items():
            schema = self.schema(node, depth)
            needs[name] = {"allOf": [{"required": needs[name]}, schema]} if needs.get(name) else schema
        if needs:
            out["dependencies"] = needs

    def rest(self, body: Node, own: str, unevaluated: str) -> Body | None:
        """The schema of what is not declared; `unevaluated*` where it can see no other schema's properties."""
        says = body.get(unevaluated, True)
        if own in body or says is True or (isinstance(says, Node) and not says):
            return body.get(own)
        if any(key in body for key in _ANNOTATES):
            raise UnsupportedError(unevaluated)
        found: Body = body[unevaluated]
        return found

    def arrays(self, body: Node, out: dict[str, Any], depth: int) -> None:
        if "contains" in body:
            least, most = body.get("minContains", 1), body.get("maxContains")
            if most is not None or least > 1:
                raise UnsupportedError("minContains or maxContains")
            if least:
                out["contains"] = self.schema(body["contains"], depth)
            if "unevaluatedItems" in body:
                raise UnsupportedError("unevaluatedItems")
        rest = self.rest(body, "items", "unevaluatedItems")
        if "prefixItems" in body:
            out["items"] = [self.schema(node, depth) for node in body["prefixItems"]]
            if rest is not None:
                out["additionalItems"] = self.schema(rest, depth)
        elif rest is not None:
            out["items"] = self.schema(rest, depth)

    def unions(self, body: Node, out: dict[str, Any], depth: int) -> None:
        if body.get("discriminator", {}).get("decides"):
            raise UnsupportedError("a discriminator")
        for key in ("anyOf", "oneOf"):
            if key in body:
                out[key] = [self.schema(node, depth) for node in body[key]]
        if "allOf" in body:
            out["allOf"] = [*out.get("allOf", []), *(self.schema(node, depth) for node in body["allOf"])]
        # An `if` alone decides nothing here; it only counts for `unevaluated*`.
        for key in ("not", "if", "then", "else") if "then" in body or "else" in body else ("not",):
            if key in body:
                out[key] = self.schema(body[key], depth)


def _holds_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(_holds_object(item) for item in value))


class Generator:
    """Generates the checks of a document's schemas, as long as that is bounded work."""

    def __init__(self, patterns: Mapping[str, Pattern], limits: Limits) -> None:
        self.limits = limits
        self.patterns = patterns
        self.count = 0

    def check(self, root: Body) -> Callable[[Any], bool]:
        """The check of a schema, which may raise anything; `UnsupportedError` when it is not for it."""
        most = self.limits.max_schemas_generated
        if self.count > most:
            raise UnsupportedError(f"beyond max_schemas_generated = {most}")
        form = _FastForm(self.patterns, self.limits)
        try:
            document = form.document(root)
        except RecursionError:
            raise UnsupportedError("a chain of references too long to follow") from None
        finally:
            self.count += form.count
        return _compiled(document)


def _compiled(document: dict[str, Any]) -> Callable[[Any], bool]:
    import fastjsonschema

    try:
        function: Callable[[Any], Any] = fastjsonschema.compile(
            document, handlers=_NoHandlers(), use_default=False, use_formats=False, detailed_exceptions=False
        )
    except Exception as error:  # noqa: BLE001  # what it raises is not documented: KeyError, SyntaxError, re.error…
        raise UnsupportedError(f"fastjsonschema: {type(error).__name__}: {error}") from None
    refusal = fastjsonschema.JsonSchemaValueException

    def check(value: Any) -> bool:
        try:
            function(value)
        except refusal:
            return False
        return True

    return check


class _NoHandlers(dict[str, Callable[[str], Any]]):
    """Claims every URI scheme and fetches nothing; the normal form has none, so this is a second lock."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        def refuse(uri: str) -> Any:
            raise LookupError(f"{uri} is outside the document: nothing is fetched")

        return refuse
