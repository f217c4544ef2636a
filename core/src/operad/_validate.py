"""Validation of a normal form: closures for the common keywords, generated code and an interpreter for the rest.

Closures are compiled per schema, when a value first reaches it, and shared by everything that refers to it.
A schema with other keywords goes to fastjsonschema, in a draft-7 form that holds nothing but what it gets
right, and what it gets wrong (`unevaluated*`, `minContains`) to `jsonschema`, which also builds every list
of errors. All three read the normal form, in which nothing can be fetched and every pattern is bounded.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

from operad._normalize import Body, children_of, in_place, ref_name
from operad._rust import rust_check

MAX_ERRORS = 20
"""`max_schema_errors`: the errors that are collected for one value."""
MAX_DATA_DEPTH = 200
"""`max_data_depth`: the levels of a value that are checked and cast."""
MAX_GENERATED = 500
"""The most schemas that code is generated for at once: beyond them that takes longer than it saves."""
_INLINE_DEPTH = 5

Check = Callable[[Any], bool]


class _UnsupportedError(Exception):
    """The fast path does not take this schema; the message says why."""


# --- normal form -> what fastjsonschema gets right ------------------------------------------------------

_SAME = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
         "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties")  # fmt: skip
_ANNOTATES = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")


class _FastForm:
    """The draft-7 form of a schema and what it reaches. Schemas nested beyond `_INLINE_DEPTH` become
    definitions, because the generated code nests with them and Python refuses 20 nested blocks."""

    def __init__(self, bodies: Mapping[str, Body], root: Body) -> None:
        self.bodies = bodies
        self.definitions: dict[str, Any] = {}
        self.count = 0
        self.root = self.schema(root, 0)

    def schema(self, body: Body, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_GENERATED:
            raise _UnsupportedError(f"more than {MAX_GENERATED} schemas")
        if isinstance(body, bool):
            return body
        if depth > _INLINE_DEPTH:
            return self.define(f"x{self.count}", body)
        out = {key: body[key] for key in _SAME if key in body}
        self.values(body, out)
        self.objects(body, out, depth + 1)
        self.arrays(body, out, depth + 1)
        self.unions(body, out, depth + 1)
        if "$ref" in body:
            name = ref_name(body)
            ref = self.define(name, self.bodies[name])
            if not out:
                return ref
            out["allOf"] = [ref, *out.get("allOf", [])]
        return out

    def define(self, name: str, body: Body) -> dict[str, str]:
        if name not in self.definitions:
            self.definitions[name] = True  # taken: the schema may refer to itself
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
                out[key] = [self.schema(node, depth) for node in body[key]]
        if "allOf" in body:
            out["allOf"] = [*out.get("allOf", []), *(self.schema(node, depth) for node in body["allOf"])]
        # An `if` alone decides nothing here; it only counts for `unevaluated*`.
        for key in ("not", "if", "then", "else") if "then" in body or "else" in body else ("not",):
            if key in body:
                out[key] = self.schema(body[key], depth)


def _holds_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(_holds_object(item) for item in value))


def _generated(bodies: Mapping[str, Body], root: Body, heavy: set[str]) -> Callable[[Any], Any]:
    """The generated check of a schema, a function that raises; `_UnsupportedError` when it is not for it."""
    import fastjsonschema

    try:
        form = _FastForm(bodies, root)
    except RecursionError:
        raise _UnsupportedError("a chain of references too long to follow") from None
    if not heavy.isdisjoint(form.definitions):
        raise _UnsupportedError("a schema that recurses, which generated code would follow without remembering")
    document = {"allOf": [form.root]} if "$ref" in form.root else dict(form.root)
    document["definitions"] = form.definitions
    document["$schema"] = "http://json-schema.org/draft-07/schema#"
    try:
        function: Callable[[Any], Any] = fastjsonschema.compile(
            document, handlers=_NoHandlers(), use_default=False, use_formats=False, detailed_exceptions=False
        )
    except Exception as error:  # noqa: BLE001  # what it raises is not documented: KeyError, SyntaxError, re.error…
        raise _UnsupportedError(f"fastjsonschema: {type(error).__name__}: {error}") from None
    return function


class _NoHandlers(dict[str, Callable[[str], Any]]):
    """Claims every URI scheme and fetches nothing; the normal form has none, so this is a second lock."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        def refuse(uri: str) -> Any:
            raise LookupError(f"{uri} is outside the document: nothing is fetched")

        return refuse


# --- closures ----------------------------------------------------------------------------------------------

_ARRAY = (list, tuple)
_CONTAINER = (dict, list, tuple)
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


_TYPED = {"type", "default"}
_VALUES = {"enum", "const"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_STRINGS = {"minLength", "maxLength", "pattern"}
_ARRAYS = {"items", "prefixItems", "minItems", "maxItems"}
_OBJECTS = {"properties", "required", "additionalProperties", "patternProperties"}
_UNIONS = {"$ref", "allOf", "anyOf", "oneOf", "not"}
_PRIVATE = {"$siblings", "discriminator"}
_CLOSED = _TYPED | _VALUES | _NUMBERS | _STRINGS | _ARRAYS | _OBJECTS | _UNIONS | _PRIVATE


class Checks:
    """The checks of a document's schemas, each made when first needed."""

    def __init__(self, bodies: Mapping[str, Body], heavy: set[str]) -> None:
        self.bodies = bodies
        self.heavy = heavy
        self._known: dict[int, tuple[Body, Check]] = {}
        self._reasons: dict[int, str] = {}
        self._local = threading.local()

    def of(self, body: Body) -> Check:
        """The check of a schema; it answers for any value, and raises `RecursionError` on one that is too deep."""
        known = self._known.get(id(body))
        if known is None:
            # The body is kept with its check, so that its id stays its own.
            known = self._known[id(body)] = (body, self._make(body))
        return known[1]

    def _make(self, body: Body) -> Check:
        if isinstance(body, bool):
            return lambda _value: body
        if _is_closed(body):
            return self._closures(body)
        try:
            return self._generated(body)
        except _UnsupportedError as error:
            return self._interpreted(body, str(error))

    def _interpreted(self, body: Body, why: str) -> Check:
        def interpret(value: Any) -> bool:
            return self.interpret(value, body)

        stand_in = rust_check(self.bodies, body, interpret)
        self._reasons[id(body)] = f"{'interpreted' if stand_in is None else 'rust'}: {why}"
        return stand_in or interpret

    def _closures(self, body: dict[str, Any]) -> Check:
        types = _types(body)
        checks: list[Check] = []
        if not body.keys().isdisjoint(_VALUES):
            checks.append(_check_values(body))
        parts: dict[type, Check] = {}
        if not body.keys().isdisjoint(_OBJECTS):
            parts[dict] = self._object(body)
        if not body.keys().isdisjoint(_ARRAYS):
            parts[list] = self._array(body)
        if not body.keys().isdisjoint(_STRINGS):
            parts[str] = _check_string(body)
        if not body.keys().isdisjoint(_NUMBERS):
            parts[int] = _check_number(body)
        if parts or types is not None:
            checks.insert(0, _check_types(types, parts))
        checks.extend(self._unions(body))
        return checks[0] if len(checks) == 1 else _every(checks)

    def lazy(self, body: Body) -> Check:
        """The check of a schema, made when first called."""
        if isinstance(body, bool) or body.keys() <= _TYPED | _VALUES:
            return self.of(body)
        made: list[Check] = []

        def check(value: Any) -> bool:
            if not made:
                made.append(self.of(body))
            return made[0](value)

        return check

    def _ref(self, name: str) -> Check:
        body = self.bodies[name]
        check = self.lazy(body)

        def remember(value: Any) -> bool:
            memo = getattr(self._local, "memo", None)
            if memo is None or not isinstance(value, _CONTAINER):
                return check(value)
            key = name, id(value)
            found: tuple[Any, bool] | None = memo.get(key)
            if found is None:
                # With the value, so that its id stays its own for as long as it is remembered.
                found = memo[key] = (value, check(value))
            return found[1]

        return remember if name in self.heavy else check

    def remembering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, for schemas that recurse: within a call no schema looks at the same part of a value twice.

        Without it, two schemas that refer to both of themselves take 2**depth steps.
        """
        local = self._local

        def run(*arguments: Any) -> Any:
            if getattr(local, "memo", None) is not None:
                return function(*arguments)
            local.memo = {}
            try:
                return function(*arguments)
            finally:
                local.memo = None

        return run

    def _unions(self, body: dict[str, Any]) -> Iterator[Check]:
        if "$ref" in body:
            yield self._ref(ref_name(body))
        for node in body.get("allOf", ()):
            yield self.lazy(node)
        if "anyOf" in body:
            yield _any([self.lazy(node) for node in body["anyOf"]])
        if "oneOf" in body:
            yield _one([self.lazy(node) for node in body["oneOf"]])
        if "not" in body:
            excluded = self.lazy(body["not"])
            yield lambda value: not excluded(value)

    def _object(self, body: dict[str, Any]) -> Check:
        properties = body.get("properties", {})
        needed = set(body.get("required", ()))
        rows = [(name, _exact(node), self.lazy(node), name in needed) for name, node in properties.items()]
        undeclared = tuple(needed - properties.keys())
        others = self._others(body, properties)

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
            return others is None or others(value)

        return check_object

    def _others(self, body: dict[str, Any], properties: Mapping[str, Body]) -> Check | None:
        """The check of what `properties` does not name."""
        rest = body.get("additionalProperties", True)
        patterns = [
            (re.compile(source).search, self.lazy(node))
            for source, node in body.get("patternProperties", {}).items()
        ]
        if not patterns:
            if rest is True or rest == {}:
                return None
            if rest is False:
                return lambda value: value.keys() <= properties.keys()
        further = self.lazy(rest)

        def check_others(value: Any) -> bool:
            for name, item in value.items():
                matched = False
                for search, check in patterns:
                    if isinstance(name, str) and search(name):
                        matched = True
                        if not check(item):
                            return False
                if not matched and name not in properties and not further(item):
                    return False
            return True

        return check_others

    def _array(self, body: dict[str, Any]) -> Check:
        prefix = [self.lazy(node) for node in body.get("prefixItems", ())]
        item = body.get("items", True)
        exact, check = _exact(item), self.lazy(item)
        least, most = body.get("minItems", 0), body.get("maxItems", math.inf)
        start = len(prefix)

        def check_array(value: Any) -> bool:
            if not least <= len(value) <= most:
                return False
            for one, part in zip(prefix, value):  # noqa: B905  # an array may be shorter, or longer
                if not one(part):
                    return False
            if item is not True:
                for part in value[start:] if start else value:
                    if part.__class__ not in exact and not check(part):
                        return False
            return True

        return check_array

    def _generated(self, body: Body) -> Check:
        from fastjsonschema import JsonSchemaValueException

        function = _generated(self.bodies, body, self.heavy)

        def check(value: Any) -> bool:
            try:
                function(value)
            except JsonSchemaValueException:
                return False
            except Exception:  # noqa: BLE001  # generated code leaks KeyError, OverflowError, RecursionError…
                return self.interpret(value, body)
            return True

        self._reasons[id(body)] = "generated"
        return check

    # --- the interpreter

    def interpret(self, value: Any, body: Body) -> bool:
        """The interpreter's answer. Raises `RecursionError`; what is no JSON is not valid."""
        memo = getattr(self._local, "memo", None)
        key = "interpreted", id(body), id(value)
        if memo is not None and key in memo:
            return bool(memo[key][1])
        try:
            valid = not self.found(value, body, 1)
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001  # TypeError, AttributeError: a Python object that is no JSON
            valid = False
        if memo is not None:
            memo[key] = value, valid
        return valid

    def found(self, value: Any, body: Body, most: int = MAX_ERRORS) -> list[Any]:
        """What is wrong, as `jsonschema` errors. Raises what `jsonschema` raises for what is no JSON."""
        import referencing

        schema = body if isinstance(body, bool) else {**body, "$defs": self.bodies}
        validator = _interpreter()(schema, registry=referencing.Registry())
        before = getattr(_call, "state", None)
        memo = getattr(self._local, "memo", None)
        _call.state = (self.bodies, {} if memo is None and self.heavy else memo)
        try:
            return list(islice(validator.iter_errors(value), most))
        finally:
            _call.state = before

    def engine(self, bodies: list[Body]) -> str:
        """How the given schemas are checked: the slowest of what each of their parts says."""
        engines = {self._engine(node) for body in bodies for node in _walk(body)}
        for slow in ("interpreted", "rust"):
            if why := sorted(engine.partition(": ")[2] for engine in engines if engine.startswith(slow)):
                return f"{slow}: {', '.join(why)}"
        return "generated" if "generated" in engines else "closures"

    def _engine(self, body: Body) -> str:
        if isinstance(body, bool) or _is_closed(body):
            return "closures"
        self.of(body)
        return self._reasons[id(body)]


def _walk(body: Body) -> Iterator[Body]:
    """A schema and those in it, down to the first that is no matter of closures."""
    stack: list[Body] = [body]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, dict) and _is_closed(node):
            stack.extend(child for child, _ in children_of(node))
            stack.extend(in_place(node))


def _is_closed(body: dict[str, Any]) -> bool:
    return all(key in _CLOSED or (key.startswith("unevaluated") and body[key] is True) for key in body)


def _exact(body: Body) -> frozenset[type]:
    """The classes whose every instance is valid."""
    if not isinstance(body, dict) or not body.keys() <= _TYPED:
        return frozenset()
    return frozenset(cls for name in _types(body) or () for cls in _CLASSES[name])


def _check_values(body: dict[str, Any]) -> Check:
    lists = [[body["const"]]] if "const" in body else []
    if "enum" in body:
        lists.append(body["enum"])

    def check(value: Any) -> bool:
        return all(any(equal(value, one) for one in values) for values in lists)

    if len(lists) == 1 and all(isinstance(value, str) for value in lists[0]):
        texts = frozenset(lists[0])
        return lambda value: value in texts if value.__class__ is str else check(value)
    return check


def _check_types(types: list[str] | None, parts: dict[type, Check]) -> Check:
    """The check of the types, and of what a schema says about values of each of them."""
    objects, items = parts.get(dict), parts.get(list)
    strings, numbers = parts.get(str), parts.get(int)
    if types == ["object"] and objects is not None:
        return lambda value: isinstance(value, dict) and objects(value)
    if types == ["array"] and items is not None:
        return lambda value: isinstance(value, _ARRAY) and items(value)
    if types == ["string"] and strings is not None:
        return lambda value: isinstance(value, str) and strings(value)

    def check(value: Any) -> bool:
        if types is not None and not any(is_type(value, name) for name in types):
            return False
        if isinstance(value, dict):
            return objects is None or objects(value)
        if isinstance(value, _ARRAY):
            return items is None or items(value)
        if isinstance(value, str):
            return strings is None or strings(value)
        return numbers is None or not is_type(value, "number") or numbers(value)

    if parts:
        return check
    exact = frozenset(cls for name in types or () for cls in _CLASSES[name])
    return lambda value: value.__class__ in exact or check(value)


def _check_string(body: dict[str, Any]) -> Check:
    least, most = body.get("minLength", 0), body.get("maxLength", math.inf)
    if "pattern" not in body:
        return lambda value: least <= len(value) <= most
    search = re.compile(body["pattern"]).search
    return lambda value: least <= len(value) <= most and search(value) is not None


def _check_number(body: dict[str, Any]) -> Check:
    least, most = body.get("minimum", -math.inf), body.get("maximum", math.inf)
    above, below = body.get("exclusiveMinimum"), body.get("exclusiveMaximum")

    def check(value: Any) -> bool:
        # As two comparisons that fail: not a number (NaN) is below and above nothing.
        if value < least or value > most:
            return False
        return not ((above is not None and value <= above) or (below is not None and value >= below))

    return check


def _every(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # a generator would double the frames of every level
            if not one(value):
                return False
        return True

    return check


def _any(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # see above
            if one(value):
                return True
        return False

    return check


def _one(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        count = 0
        for one in checks:
            if one(value):
                count += 1
                if count > 1:
                    return False
        return count == 1

    return check


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

    key = "errors", ref, id(instance)
    known = memo.get(key)
    if known is None:
        # No more than are ever shown: schemas that branch as they recurse double them with every level.
        known = memo[key] = (instance, list(islice(validator.descend(instance, body), MAX_ERRORS)))
    for error in known[1]:
        # A copy: whoever passes an error on adds to its path.
        yield ValidationError.create_from(error)


@cache
def _interpreter() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    checker = Draft202012Validator.TYPE_CHECKER
    for name in _CLASSES:
        checker = checker.redefine(name, lambda _checker, value, name=name: is_type(value, name))
    own = {"$ref": _ref, "uniqueItems": _unique_items, "multipleOf": _multiple_of, "const": _const, "enum": _enum}
    validator = extend(Draft202012Validator, own, type_checker=checker)
    descend = validator.descend

    def descend_with_path(self: Any, instance: Any, schema: Any, path: Any = None, **options: Any) -> Any:
        if schema is not False:
            return descend(self, instance, schema, path=path, **options)
        # The library leaves out where: it answers for `false` before it looks at the path.
        error = ValidationError("", validator=None, validator_value=None, instance=instance, schema=False)
        if path is not None:
            error.path.appendleft(path)
        return iter([error])

    validator.descend = descend_with_path
    return validator


def _const(validator: Any, const: Any, instance: Any, schema: Any) -> Iterator[Any]:
    yield from _enum(validator, [const], instance, schema)


def _enum(validator: Any, values: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not any(equal(instance, value) for value in values):
        yield ValidationError(f"{instance!r:.60} is not one of the allowed values")


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
