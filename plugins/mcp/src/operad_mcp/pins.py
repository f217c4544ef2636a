"""Approved definitions of tools: a tool whose definition changed is held until a user accepts the change."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from operad import ConfigError
from operad_mcp.foreign import one_line

if TYPE_CHECKING:
    from logging import Logger, LoggerAdapter

Json = dict[str, Any]
FILE = "operad.pins.json"
"""The file of ``pin = true``, next to the configuration."""
_DEFINITION = ("title", "description", "inputSchema", "outputSchema", "annotations")


@attrs.define
class PinFile:
    """A file of definitions: by server, then by tool.

    Args:
        path: the file. If there is none, nothing is approved yet.
        approved: the definitions that may be used.
        held: the definitions that servers send instead.
    """

    path: Path
    approved: dict[str, dict[str, Json]] = attrs.field(factory=dict)
    held: dict[str, dict[str, Json]] = attrs.field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> PinFile:
        """Read a file. Raises `ConfigError` if it cannot be read: it is not known what is approved then."""
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, dict[str, dict[str, Any]]]])
            return cls(path, found["approved"], found["held"])
        except FileNotFoundError:
            return cls(path)
        except KeyError as error:
            raise ConfigError(f"pin: {path} has no {error}; restore it, or delete it to start over") from None
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"pin: {path} cannot be read: {error}") from None

    def write(self) -> None:
        """Replace the file in one step. Raises `ConfigError` if it cannot be written."""
        held = {server: tools for server, tools in self.held.items() if tools}
        text = json.dumps({"approved": self.approved, "held": held}, indent=2, sort_keys=True)
        written = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            written.write_text(f"{text}\n", encoding="utf-8")
            written.replace(self.path)
        except OSError as error:
            message = f'pin: {self.path} cannot be written: {error.strerror}; name another file: pin = "FILE"'
            raise ConfigError(message) from None

    def waiting(self) -> Iterator[tuple[str, str, str]]:
        """Yield ``(name, server, tool)`` of each definition that is held."""
        for server, tools in sorted(self.held.items()):
            for tool in sorted(tools):
                yield name_of(server, tool), server, tool

    def accept(self, name: str) -> list[str]:
        """Approve what is held of a tool, or of all tools of a server; return the tools' names."""
        accepted = []
        for each, server, tool in list(self.waiting()):
            if name in (each, server):
                self.approved.setdefault(server, {})[tool] = self.held[server].pop(tool)
                accepted.append(each)
        return accepted


def name_of(server: str, tool: str) -> str:
    """Return the name by which a user accepts a tool. Servers choose the names of tools."""
    return one_line(f"{server}.{tool}")


def changed(approved: Json, sent: Json) -> list[str]:
    """Return the fields in which two definitions are different."""
    # As JSON, because 1, 1.0 and True are equal in Python.
    return [key for key in _DEFINITION if _text(approved.get(key)) != _text(sent.get(key))]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


class Pins:
    """The approved definitions of one server's tools.

    A tool is approved when it is seen for the first time.

    Args:
        server: the name of the server in the file.
        place: the path of a file that keeps the definitions; True: they are kept in this process.
        logger: reports changes.
    """

    def __init__(self, server: str, place: bool | str, logger: Logger | LoggerAdapter[Any]) -> None:
        self._server, self._logger = server, logger
        self._path = Path(place) if isinstance(place, str) else None
        self._approved = {} if self._path is None else PinFile.read(self._path).approved.get(server, {})
        self._held: dict[str, Json] = {}

    def approved(self, tool: Json) -> Json:
        """Return a tool with its approved definition."""
        definition = {key: tool[key] for key in _DEFINITION if key in tool}
        known = self._approved.setdefault(tool["name"], definition)
        if changed(known, definition):
            self._held[tool["name"]] = definition
        else:
            self._held.pop(tool["name"], None)
        return {**{key: tool[key] for key in tool if key not in _DEFINITION}, **known}

    def why_held(self, tool: Json, operation_id: str) -> str | None:
        """Return the reason if calls of a tool are not allowed, with what to do; ``None`` if they are."""
        held = self._held.get(tool["name"])
        if held is None:
            return None
        fields = ", ".join(changed(self._approved[tool["name"]], held))
        how = "load the source again to accept it"
        if self._path is not None:
            accept = shlex.quote(name_of(self._server, tool["name"]))
            how = f"review it with `operad pin`, accept it with `operad pin --accept {accept}`"
        reason = f'"{operation_id}" is held: its definition changed since it was approved ({fields}); {how}'
        self._logger.warning("%s", reason)
        return reason

    def keep(self) -> None:
        """Write new definitions into the file. Raises `ConfigError` if that is not possible."""
        if self._path is None:
            return
        file = PinFile.read(self._path)
        # What the file has comes first: the user may have accepted a change meanwhile.
        accepted = file.approved.get(self._server, {})
        approved = {**self._approved, **accepted}
        held = {name: sent for name, sent in self._held.items() if changed(approved[name], sent)}
        if (approved, held) != (accepted, file.held.get(self._server, {})):
            file.approved[self._server], file.held[self._server] = approved, held
            file.write()
