"""The operations that a caller may use in a program, under their names in programs."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from operad import Identity, OperationSpec, OperationType
from operad.names import attribute_names
from operad.plugin import may_list
from operad_cli.stubs.modules import one_line, program_module
from operad_code.sandbox import Namespace

OF_CODE_MODE = "operad.code"
"""The key in the metadata of ``search``, ``describe`` and ``run`` that keeps programs from calling them."""

_WORD = re.compile(r"[^\W\d]\w*")
_MODULES = """
asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools json
math os pathlib posixpath random re sys time tomllib typing unicodedata
"""
_TAKEN = frozenset((*dir(builtins), *_MODULES.split(), "main"))
"""Names that mean something else in programs: built-in functions and the modules of the interpreter."""


class Member(NamedTuple):
    """An operation with its names in programs, such as ``github`` and ``issues_list``."""

    variable: str
    attribute: str
    spec: OperationSpec

    @property
    def name(self) -> str:
        """The name in programs, such as ``github.issues_list``."""
        return f"{self.variable}.{self.attribute}"

    @property
    def function(self) -> str:
        """The function that programs call: `name`, or ``github.events.take`` for a subscription."""
        return f"{self.name}.take" if self.spec.type is OperationType.SUBSCRIPTION else self.name

    @property
    def signature(self) -> str:
        """The signature, such as ``github.issues_list(*, owner: str, repo: str) -> list[Issue]``."""
        return f"{self.variable}.{one_line(self.attribute, self.spec)}"


class Surface:
    """The operations that programs of one caller may use.

    Other operations have no names here, so programs can neither find nor call them.

    Args:
        specs: all operations.
        identity: the identity of the caller; ``None`` if the caller is anonymous.
        chooses: a function that takes an operation id, and returns True if programs may use the operation.
        trusted: whether to skip the access check.
    """

    def __init__(
        self,
        specs: Sequence[OperationSpec],
        identity: Identity | None,
        chooses: Callable[[str], bool],
        *,
        trusted: bool = False,
    ) -> None:
        self.specs, self.identity, self.trusted = specs, identity, trusted
        spaces: dict[str, list[OperationSpec]] = {}
        for spec in specs:
            may_call = trusted or may_list(spec.access_control, identity)
            if may_call and chooses(spec.id) and OF_CODE_MODE not in spec.metadata:
                spaces.setdefault(spec.namespace, []).append(spec)
        self._spaces = {variable: spaces[space] for variable, space in _variables(spaces).items()}
        self._tables: dict[str, dict[str, OperationSpec]] = {}

    def table(self, variable: str) -> Mapping[str, OperationSpec]:
        """Return attribute -> operation of the namespace that programs name ``variable``; if unknown, ``{}``."""
        table = self._tables.get(variable)
        if table is None:
            by_name = {spec.name: spec for spec in self._spaces.get(variable, ())}
            table = {attribute: by_name[name] for attribute, name in attribute_names(by_name).items()}
            self._tables[variable] = table
        return table

    @property
    def variables(self) -> Iterable[str]:
        """The names of the namespaces in programs."""
        return self._spaces

    def find(self, name: str) -> Member | None:
        """Return the operation that has ``name`` as its id or as its name in programs.

        Return ``None`` if no such operation exists, or programs of the caller may not use it.
        """
        variable, _, attribute = name.removesuffix(".take").partition(".")
        if (spec := self.table(variable).get(attribute)) is not None:
            return Member(variable, attribute, spec)
        for variable, specs in self._spaces.items():
            if specs[0].namespace == name.partition(".")[0]:
                table = self.table(variable)
                return next(
                    (Member(variable, each, table[each]) for each in table if table[each].id == name), None
                )
        return None

    def used(self, code: str) -> dict[str, list[Member]]:
        """Return the operations that a program may call, by the name of their namespace in programs.

        The text of the program is not parsed, because only the sandbox reads programs. An operation such as
        ``github.issues_list`` is returned if both words are in the text, even if they are in a comment.
        """
        words = dict.fromkeys(_WORD.findall(code))
        return {
            variable: [Member(variable, word, table[word]) for word in words if word in table]
            for variable in self._spaces
            if variable in words
            for table in (self.table(variable),)
        }


def namespaces(used: Mapping[str, Sequence[Member]]) -> tuple[Namespace, ...]:
    """Return the operations as `Namespace` objects, with stubs for the check of types."""
    return tuple(
        Namespace(
            variable,
            program_module(variable, {member.attribute: member.spec for member in members}, loose=True),
            tuple(member.function.partition(".")[2] for member in members),
        )
        for variable, members in used.items()
    )


def _variables(spaces: Mapping[str, Any]) -> dict[str, str]:
    """Return name in programs -> namespace; names that mean something else in Python get a ``_``."""
    names = attribute_names(spaces)
    return {_free(name, names): space for name, space in names.items()}


def _free(name: str, names: Mapping[str, str]) -> str:
    if name not in _TAKEN:
        return name
    name = f"{name}_"
    return name if name not in names else _free(name, names)
