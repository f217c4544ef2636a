"""Convert JSON values to Python values and back, with msgspec if possible, else with cattrs.

Types that msgspec supports completely are converted fast and strictly. For a class with converters, validators or
aliases, a pydantic model, a union of several classes, or a type that an application registered, cattrs calls the
class itself, so that no code of the class is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from operad.functions.kinds import (
    ARRAYS,
    Registered,
    Types,
    adapter,
    bare,
    dumped,
    has_class,
    is_model,
    is_struct,
    is_union,
    leaves,
    library,
)

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

Structure = Callable[[Any], Any]


class Conversions:
    """The conversions between JSON values and the Python values of typed functions; applications can add types.

    ::

        conversions = Conversions()
        conversions.register(Money, schema={"type": "string"}, structure=Money.parse, unstructure=str)

        @operation(conversions=conversions)
        async def pay(amount: Money) -> Money: ...

    An application can add its own hooks to `converter`, which converts types that msgspec does not support.
    """

    def __init__(self) -> None:
        self.types = Types()

    @cached_property
    def converter(self) -> Converter:
        """The cattrs converter for types that msgspec does not support completely; made when it is first used."""
        from cattrs import Converter
        from cattrs.gen import make_dict_unstructure_fn

        converter = Converter(prefer_attrib_converters=True, use_alias=True)
        for cls, one in self.types.registered.items():
            _hook(converter, cls, one)
        converter.register_structure_hook_func(lambda hint: hint in leaves(), library().convert)
        converter.register_structure_hook_func(is_model, lambda value, hint: adapter(hint).validate_python(value))
        converter.register_structure_hook_func(is_struct, lambda value, hint: _convert(value, hint=hint))
        converter.register_structure_hook_factory(has_class, self._object)
        converter.register_structure_hook_factory(_is_array, self._array)
        converter.register_structure_hook_factory(is_union, self._union)
        converter.register_unstructure_hook_func(is_model, dumped)
        converter.register_unstructure_hook_factory(
            has_class, lambda cls: make_dict_unstructure_fn(cls, converter)
        )
        return converter

    def register(
        self,
        cls: type[T],
        *,
        schema: Mapping[str, Any],
        structure: Callable[[Any], T],
        unstructure: Callable[[T], Any],
    ) -> None:
        """Add a type that functions with these conversions may use; a second registration replaces the first.

        Args:
            cls: the class. A subclass in a type hint must be registered, too.
            schema: the JSON Schema of the JSON form.
            structure: converts a valid JSON value to an instance. If it raises, the input is invalid.
            unstructure: converts an instance to a JSON value.
        """
        self.types.registered[cls] = made = Registered(schema, structure, unstructure)
        if "converter" in vars(self):
            _hook(self.converter, cls, made)

    def structurer(self, hint: Any) -> Structure | None:
        """Return a function that converts valid JSON values to a type; ``None`` if they need no conversion."""
        hint = bare(hint)
        if hint in (str, bool, type(None), Any, object):
            return None
        if self.types.is_whole(hint):
            return partial(_convert, hint=hint)
        return lambda value: self.converter.structure(value, hint)

    def unstructurer(self, hint: Any) -> Callable[[Any], Any]:
        """Return a function that converts Python values of a type hint to JSON values."""
        if self.types.is_whole(bare(hint)):
            return self.types.to_json
        return lambda value: self.types.to_json(self.converter.unstructure(value))

    # --- hooks of cattrs ---------------------------------------------------------------------------

    def _object(self, cls: Any) -> Callable[[Any, Any], Any]:
        from cattrs.gen import make_dict_structure_fn

        made: Any = make_dict_structure_fn(cls, self.converter)
        return lambda value, _: value if isinstance(value, cls) else made(value, cls)

    def _array(self, hint: Any) -> Callable[[Any, Any], Any]:
        made = ARRAYS[get_origin(hint)]
        (member,) = get_args(hint)
        structure = self.converter.structure
        return lambda value, _: made(structure(item, member) for item in value)

    def _union(self, hint: Any) -> Callable[[Any, Any], Any]:
        from operad.functions.unions import Union  # few functions need it

        union = Union.of(hint, self.types, self.structurer)
        return lambda value, _: union(value)


def _hook(converter: Converter, cls: type[Any], one: Registered) -> None:
    converter.register_structure_hook(cls, lambda value, _: one.structure(value))
    converter.register_unstructure_hook(cls, one.unstructure)


def _is_array(hint: Any) -> bool:
    return get_origin(hint) in ARRAYS


def _convert(value: Any, *, hint: Any) -> Any:
    msgspec = library()
    try:
        return msgspec.convert(value, hint, str_keys=True)
    except msgspec.ValidationError:
        # JSON Schema accepts 5.0 as an integer, and what the schema accepts must be converted.
        return msgspec.convert(_integral(value), hint, str_keys=True)


def _integral(value: Any) -> Any:
    """Return the value with integers in place of integral floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integral(item) for item in value]
    return value
