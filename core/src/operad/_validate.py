"""Validation of a normal form: generated code where that is right, the interpreter `jsonschema` elsewhere.

The fast path hands fastjsonschema a draft-7 form that holds nothing but what it gets right; any other
keyword sends the whole schema to the interpreter, which also builds every list of errors. Both read the
normal form, in which nothing can be fetched and every pattern is bounded.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

from operad._normalize import Body, Closure, components, in_place, in_place_refs, ref_name

MAX_ERRORS = 20
"""`max_schema_errors`: the errors that are collected for one value."""
MAX_DATA_DEPTH = 200
"""`max_data_depth`: the levels of a value that are checked and cast."""
MAX_PASSES = 100_000
"""How often generated code may look at one part of a value; beyond it results are remembered instead."""
_HEAVY = 10_000
_INLINE_DEPTH = 5

Check = Callable[[Any], bool]


class _UnsupportedError(Exception):
    """The fast path does not take this schema; the message says why."""


# --- normal form -> what fastjsonschema gets right ------------------------------------------------------

_SAME = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
         "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties")  # fmt: skip
_ANNOTATES = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")


class _FastForm:
    """The draft-7 form of a closure. Nested schemas beyond `_INLINE_DEPTH` become definitions, because
    the generated code nests with them and Python refuses 20 nested blocks; so do the branches of unions,
    so that the cast finds a function for each."""

    def __init__(self, closure: Closure) -> None:
        self.bodies = closure.bodies
        self.definitions: dict[str, Any] = {}
        self.branches: dict[int, str] = {}
        self.root = self.schema(self.bodies[closure.root], 0)
        if not isinstance(self.root, bool):
            for name in closure.names:
                self.definitions[name] = self.schema(self.bodies[name], 0)

    def schema(self, body: Body, depth: int) -> Any:
        if isinstance(body, bool):
            return body
        if depth > _INLINE_DEPTH:
            return self.hoist(body)
        out = {key: body[key] for key in _SAME if key in body}
        self.values(body, out)
        self.objects(body, out, depth + 1)
        self.arrays(body, out, depth + 1)
        self.unions(body, out, depth + 1)
        if "$ref" in body:
            ref = {"$ref": f"#/definitions/{ref_name(body)}"}
            if not out:
                return ref
            out["allOf"] = [ref, *out.get("allOf", [])]
        return out

    def hoist(self, body: Body) -> Any:
        if not isinstance(body, dict):
            return body
        if set(body) <= {"$ref", "default"} and "$ref" in body:
            self.branches[id(body)] = ref_name(body)
            return {"$ref": f"#/definitions/{ref_name(body)}"}
        name = self.branches.get(id(body))
        if name is None:
            name = self.branches[id(body)] = f"x{len(self.branches)}"
            self.definitions[name] = self.schema(body, 0)
        return {"$ref": f"#/definitions/{name}"}

    def values(self, body: dict[str, Any], out: dict[str, Any]) -> None:
        if "multipleOf" in body:
            if isinstance(body["multipleOf"], float):
                raise _UnsupportedError("multipleOf of a fraction")
            out["multipleOf"] = body["multipleOf"]
        if "const" in body and "enum" in body:
            raise _UnsupportedError("const beside enum")
        values = [body["const"]] if "const" in body else body.get("enum")
        if values is not None:
            if any(_holds_object(value) for value in values):
                # Its resolver would take a "$ref" or "$id" inside such a value for its own.
                raise _UnsupportedError("an object in enum or const")
            out["enum"] = values

    def objects(self, body: dict[str, Any], out: dict[str, Any], depth: int) -> None:
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

    def dependencies(self, body: dict[str, Any], out: dict[str, Any], depth: int) -> None:
        needs = dict(body.get("dependentRequired", {}))
        for name, node in body.get("dependentSchemas", {}).items():
            schema = self.schema(node, depth)
            needs[name] = {"allOf": [{"required": needs[name]}, schema]} if needs.get(name) else schema
        if needs:
            out["dependencies"] = needs

    def rest(self, body: dict[str, Any], own: str, unevaluated: str) -> Body | None:
        """The schema of what is not declared; `unevaluated*` where it can see no other schema's properties."""
        if body.get(unevaluated, True) in (True, {}) or own in body:
            return body.get(own)
        if any(key in body for key in _ANNOTATES):
            raise _UnsupportedError(unevaluated)
        found: Body = body[unevaluated]
        return found

    def arrays(self, body: dict[str, Any], out: dict[str, Any], depth: int) -> None:
        if "contains" in body:
            least, most = body.get("minContains", 1), body.get("maxContains")
            if most is not None or least > 1:
                raise _UnsupportedError("minContains or maxContains")
            if least:
                out["contains"] = self.schema(body["contains"], depth)
            if "unevaluatedItems" in body:
                raise _UnsupportedError("unevaluatedItems")
        rest = self.rest(body, "items", "unevaluatedItems")
        if "prefixItems" in body:
            out["items"] = [self.schema(node, depth) for node in body["prefixItems"]]
            if rest is not None:
                out["additionalItems"] = self.schema(rest, depth)
        elif rest is not None:
            out["items"] = self.schema(rest, depth)

    def unions(self, body: dict[str, Any], out: dict[str, Any], depth: int) -> None:
        for key in ("anyOf", "oneOf"):
            if key in body:
                out[key] = [self.branch(node, depth) for node in body[key]]
        if "allOf" in body:
            out["allOf"] = [*out.get("allOf", []), *(self.schema(node, depth) for node in body["allOf"])]
        # An `if` alone decides nothing here; it only counts for `unevaluated*`.
        for key in ("not", "if", "then", "else") if "then" in body or "else" in body else ("not",):
            if key in body:
                out[key] = self.schema(body[key], depth)

    def branch(self, body: Body, depth: int) -> Any:
        return self.schema(body, depth) if simple_check(body) else self.hoist(body)


def _holds_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(_holds_object(item) for item in value))


def _compile_fast(closure: Closure) -> tuple[Check, dict[int, Check]]:
    """The generated check of a closure and, by identity of the branch, those of its unions.

    Raises `_UnsupportedError` when the closure is not for the fast path.
    """
    import fastjsonschema

    form = _FastForm(closure)
    if isinstance(form.root, bool):
        raise _UnsupportedError("a boolean")
    document = {**form.root, "$schema": "http://json-schema.org/draft-07/schema#", "definitions": form.definitions}
    if "$ref" in form.root:
        document = {"allOf": [form.root], "definitions": form.definitions}
        document["$schema"] = "http://json-schema.org/draft-07/schema#"
    try:
        function = fastjsonschema.compile(
            document, handlers=_NoHandlers(), use_default=False, use_formats=False, detailed_exceptions=False
        )
    except Exception as error:  # noqa: BLE001  # what it raises is not documented: KeyError, SyntaxError, re.error…
        raise _UnsupportedError(f"fastjsonschema: {type(error).__name__}: {error}") from None
    known = function.__globals__
    branches = {}
    for identity, name in form.branches.items():
        branch = known.get(f"validate___definitions_{name}")
        if branch is not None:
            branches[identity] = branch
    return function, branches


class _NoHandlers(dict[str, Callable[[str], Any]]):
    """Claims every URI scheme and fetches nothing; the normal form has none, so this is a second lock."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        def refuse(uri: str) -> Any:
            raise LookupError(f"{uri} is outside the document: nothing is fetched")

        return refuse


# --- plain shapes: a check without any library ------------------------------------------------------------

_ARRAY = (list, tuple)
_CLASSES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "string": (str,),
    "array": _ARRAY,
    "object": (dict,),
    "integer": (int,),
    "number": (int, float),
}


def is_type(value: Any, name: str) -> bool:
    """Whether a value is of a JSON type; 3.0 is an integer, True is no number, a tuple is an array."""
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _CLASSES[name]) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


def equal(left: Any, right: Any) -> bool:
    """JSON equality: 1 is 1.0 and is not True, at every level."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if isinstance(left, _ARRAY) and isinstance(right, _ARRAY):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def simple_check(body: Body, depth: int = 0) -> Check | None:
    """The check of a plain shape, as closures: faster than generated code and ready at once.

    A plain shape says nothing but `type`, `enum` or `const`, and of parts `properties`, `required`, one schema
    of `items` and `additionalProperties` true or false. None for any other schema.
    """
    if isinstance(body, bool):
        return lambda _value: body
    if depth > _INLINE_DEPTH or not body.keys() <= _PLAIN:
        return None
    types = _types(body)
    if "const" in body or "enum" in body:
        return _check_values(body, types) if body.keys() <= _PLAIN_VALUES else None
    parts: dict[str, Check] = {}
    if not body.keys().isdisjoint(_PLAIN_OBJECT):
        check = _check_object(body, depth)
        if check is None:
            return None
        parts["object"] = check
    if "items" in body:
        check = simple_check(body["items"], depth + 1)
        if check is None:
            return None
        parts["array"] = _check_items(check)
    return _check_types(types, parts)


_PLAIN_VALUES = {"type", "enum", "const", "default"}
_PLAIN_OBJECT = {"properties", "required", "additionalProperties"}
_PLAIN = _PLAIN_VALUES | _PLAIN_OBJECT | {"items"}


def _check_values(body: dict[str, Any], types: list[str] | None) -> Check:
    lists = [[body["const"]]] if "const" in body else []
    if "enum" in body:
        lists.append(body["enum"])

    def check(value: Any) -> bool:
        return all(any(equal(value, one) for one in values) for values in lists) and (
            types is None or any(is_type(value, name) for name in types)
        )

    if len(lists) == 1 and types in (None, ["string"]) and all(isinstance(value, str) for value in lists[0]):
        texts = frozenset(lists[0])
        return lambda value: value in texts if value.__class__ is str else check(value)
    return check


def _check_types(types: list[str] | None, parts: dict[str, Check]) -> Check:
    objects, items = parts.get("object"), parts.get("array")
    if types == ["object"] and objects is not None:
        return lambda value: isinstance(value, dict) and objects(value)
    if types == ["array"] and items is not None:
        return lambda value: isinstance(value, _ARRAY) and items(value)

    def check(value: Any) -> bool:
        if types is not None and not any(is_type(value, name) for name in types):
            return False
        if objects is not None and isinstance(value, dict):
            return objects(value)
        return items is None or not isinstance(value, _ARRAY) or items(value)

    if parts or types is None:
        return check
    exact = exact_classes(types)
    return lambda value: value.__class__ in exact or check(value)


def _check_items(check: Check) -> Check:
    return lambda value: all(map(check, value))


def _check_object(body: dict[str, Any], depth: int) -> Check | None:
    properties = body.get("properties", {})
    rest = body.get("additionalProperties", True)
    if not isinstance(rest, bool):
        return None
    needed = set(body.get("required", ()))
    rows = []
    for name, node in properties.items():
        check = simple_check(node, depth + 1)
        if check is None:
            return None
        plain = isinstance(node, dict) and node.keys() <= {"type", "default"}
        exact = exact_classes(_types(node) or []) if isinstance(node, dict) and plain else frozenset[type]()
        rows.append((name, exact, check, name in needed))
    undeclared = tuple(needed - properties.keys())

    def check_object(value: Any) -> bool:
        for name, exact, check, required in rows:
            if name in value:
                item = value[name]
                if item.__class__ not in exact and not check(item):
                    return False
            elif required:
                return False
        for name in undeclared:
            if name not in value:
                return False
        return rest or value.keys() <= properties.keys()

    return check_object


def exact_classes(types: list[str]) -> frozenset[type]:
    """The classes whose very instances are of one of the JSON types."""
    return frozenset(cls for name in types for cls in _CLASSES[name])


def _types(body: dict[str, Any]) -> list[str] | None:
    types = body.get("type")
    return [types] if isinstance(types, str) else types


# --- the interpreter ---------------------------------------------------------------------------------------

_call = threading.local()


def _frozen(value: Any) -> Any:
    """A hashable stand-in that is equal where two JSON values are."""
    if isinstance(value, dict):
        return "o", frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, _ARRAY):
        return "a", tuple(map(_frozen, value))
    return (bool, value) if isinstance(value, bool) else value


def _unique_items(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if unique and isinstance(instance, list | tuple):
        try:
            distinct = len({_frozen(item) for item in instance})
        except TypeError:  # a Python object that cannot be hashed: it is no JSON, and only itself
            distinct = len(instance)
        if distinct < len(instance):
            yield ValidationError("has non-unique items")


def _multiple_of(validator: Any, factor: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not is_type(instance, "number"):
        return
    if isinstance(instance, float) and not math.isfinite(instance):
        failed = True
    else:
        # As decimals, the way they are written: 19.01 is a multiple of 0.01.
        failed = (Fraction(repr(instance)) / Fraction(repr(factor))).denominator != 1
    if failed:
        yield ValidationError(f"{instance!r} is not a multiple of {factor}")


def _ref(validator: Any, ref: str, instance: Any, schema: Any) -> Iterator[Any]:
    """A reference of the normal form; remembered within a call where schemas branch as they recurse."""
    bodies, memo = _call.state
    body = bodies[ref[8:]]
    if memo is None:
        yield from validator.descend(instance, body)
        return
    from jsonschema.exceptions import ValidationError

    key = ref, id(instance)
    errors = memo.get(key)
    if errors is None:
        errors = memo[key] = list(validator.descend(instance, body))
    for error in errors:
        # A copy: whoever passes an error on adds to its path.
        yield ValidationError.create_from(error)


@cache
def _interpreter() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    checker = Draft202012Validator.TYPE_CHECKER
    for name in _CLASSES:
        checker = checker.redefine(name, lambda _checker, value, name=name: is_type(value, name))
    own = {"$ref": _ref, "uniqueItems": _unique_items, "multipleOf": _multiple_of, "const": _const, "enum": _enum}
    return extend(Draft202012Validator, own, type_checker=checker)


def _const(validator: Any, const: Any, instance: Any, schema: Any) -> Iterator[Any]:
    yield from _enum(validator, [const], instance, schema)


def _enum(validator: Any, values: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not any(equal(instance, value) for value in values):
        yield ValidationError(f"{instance!r:.60} is not one of the allowed values")


class Validation:
    """How values are checked against one closure."""

    def __init__(self, closure: Closure, *, fast: bool = True) -> None:
        self.closure = closure
        self.passes = _parallel(closure)
        self.reason: str | None = None
        self.branches: dict[int, Check] = {}
        self.function: Check | None = None
        self.is_simple = False
        self.depth = 0 if self.passes < 2 else int(math.log(MAX_PASSES) / math.log(self.passes))
        self._checks: dict[int, tuple[Body, Check]] = {}
        self._validators: dict[int, Any] = {}
        self._errors: tuple[type[Exception], ...] = ()
        body = closure.bodies[closure.root]
        simple = simple_check(body) if fast else None
        if simple is not None:
            self.is_simple = True
            self.check = simple
            return
        if fast:
            self._compile()
        else:
            self.reason = "switched off"
        self.check = self.interpret if self.function is None else self._wrap(self.function, body)

    def _compile(self) -> None:
        from fastjsonschema import JsonSchemaValueException

        try:
            self.function, self.branches = _compile_fast(self.closure)
            self._errors = (JsonSchemaValueException,)
        except (_UnsupportedError, RecursionError) as error:
            self.reason = str(error) or "too deep"

    def _wrap(self, function: Check, body: Body) -> Check:
        """`function`, which raises, as a check, which answers; what it cannot answer is interpreted."""
        (mismatch,) = self._errors
        limit = self.depth

        def check(value: Any) -> bool:
            try:
                function(value)
            except mismatch:
                return False
            except Exception:  # noqa: BLE001  # generated code leaks KeyError, OverflowError, RecursionError…
                return self._interpret(value, body)
            return True

        if not limit:
            return check
        return lambda value: self._interpret(value, body) if is_deeper(value, limit) else check(value)

    def interpret(self, value: Any) -> bool:
        """The interpreter's answer for the whole schema."""
        return self._interpret(value, self.closure.bodies[self.closure.root])

    def _interpret(self, value: Any, body: Body) -> bool:
        try:
            return not self._found(value, body, 1)
        except Exception:  # noqa: BLE001  # RecursionError on deep values, TypeError on what is no JSON
            return False

    def _found(self, value: Any, body: Body, most: int) -> list[Any]:
        before = getattr(_call, "state", None)
        _call.state = (self.closure.bodies, {} if self.passes > 1 else None)
        try:
            return list(islice(self._validator(body).iter_errors(value), most))
        finally:
            _call.state = before

    def _validator(self, body: Body) -> Any:
        found = self._validators.get(id(body))
        if found is None:
            import referencing

            schema = body if isinstance(body, bool) else {**body, "$defs": self.closure.bodies}
            found = _interpreter()(schema, registry=referencing.Registry())
            self._validators[id(body)] = found
        return found

    def of(self, body: Body) -> Check:
        """The check of one schema of the closure: a branch of a union, or a property of one."""
        known = self._checks.get(id(body))
        if known is None:
            check = simple_check(body)
            if check is None:
                function = self.branches.get(id(body))
                if function is None:
                    check = lambda value: self._interpret(value, body)  # noqa: E731  # one of three ways to make it
                else:
                    check = self._wrap(function, body)
            # The body is kept with its check, so that its id stays its own.
            known = self._checks[id(body)] = (body, check)
        return known[1]

    def errors(self, value: Any) -> list[Any]:
        """What is wrong, as `jsonschema` errors, at most `MAX_ERRORS`.

        Raises `RecursionError` and whatever `jsonschema` raises for what is no JSON.
        """
        return self._found(value, self.closure.bodies[self.closure.root], MAX_ERRORS)


def is_deeper(value: Any, limit: int) -> bool:
    """Whether a value has more than `limit` levels of arrays and objects."""
    level = [value]
    for _ in range(limit + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, _ARRAY):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, (dict, list, tuple)) for item in level)


# --- how often one part of a value is looked at --------------------------------------------------------


def _parallel(closure: Closure) -> int:
    """The most large schemas that apply to one property or item: what multiplies with every level."""
    edges = {name: refs_of(closure.bodies[name]) for name in closure.names}
    weights: dict[str, int] = {}
    for group in components(edges):
        for name in group:
            cyclic = len(group) > 1 or name in edges[name]
            weights[name] = _HEAVY + 1 if cyclic else min(1 + sum(weights[ref] for ref in edges[name]), _HEAVY + 1)
    heavy = {name for name, weight in weights.items() if weight > _HEAVY}
    if not heavy:
        return 1
    return max((_fan(closure, closure.bodies[name], heavy) for name in closure.names), default=1)


def refs_of(body: Body) -> list[str]:
    """The names that a normal form refers to, wherever."""
    found = []
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                found.append(ref_name(node))
            stack.extend(child for child, _ in _children(node))
            stack.extend(in_place(node))
            if "propertyNames" in node:
                stack.append(node["propertyNames"])
    return found


def _children(body: Mapping[str, Any]) -> Iterator[tuple[Body, str]]:
    """The subschemas of parts of a value, each with the part: a property's name, `{}` or `[]`."""
    for name, node in body.get("properties", {}).items():
        yield node, "." + name
    for node in body.get("patternProperties", {}).values():
        yield node, "{}"
    for key in ("additionalProperties", "unevaluatedProperties"):
        if key in body:
            yield body[key], "{}"
    for node in body.get("prefixItems", ()):
        yield node, "[]"
    for key in ("items", "contains", "unevaluatedItems"):
        if key in body:
            yield body[key], "[]"


def _fan(closure: Closure, body: Body, heavy: set[str]) -> int:
    counts: Counter[str] = Counter()
    stack, seen = [body], 0
    while stack and seen < 20_000:
        node = stack.pop()
        seen += 1
        if isinstance(node, dict):
            if "$ref" in node:
                stack.append(closure.bodies[ref_name(node)])
            for child, part in _children(node):
                counts[part] += sum(name in heavy for name in in_place_refs(child))
            stack.extend(in_place(node))
    return max(
        (count + (counts["{}"] if part.startswith(".") else 0) for part, count in counts.items()), default=1
    )
