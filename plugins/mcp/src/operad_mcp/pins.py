"""The approved definitions of tools. A tool that is new or changed is held until a user accepts it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Container, Iterator
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
"""The name of the file for ``pin = true``, next to the configuration."""
_DEFINITION = ("title", "description", "inputSchema", "outputSchema", "annotations")


@attrs.define
class PinFile:
    """A file with definitions of tools, by server and then by tool.

    Args:
        path: the path of the file. If it does not exist, no definition is approved yet.
        approved: the definitions that the user has approved.
        held: new or changed definitions that wait for approval.
    """

    path: Path
    approved: dict[str, dict[str, Json]] = attrs.field(factory=dict)
    held: dict[str, dict[str, Json]] = attrs.field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> PinFile:
        """Return the content of a file; an empty `PinFile` if it does not exist.

        Raises `ConfigError` if the file cannot be read, because the approved definitions are then unknown.
        """
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, dict[str, dict[str, Any]]]])
            return cls(path, found["approved"], found["held"])
        except FileNotFoundError:
            return cls(path)
        except KeyError as error:
            raise ConfigError(f"pin: {path} has no table {error}; restore or delete the file") from None
        except (OSError, msgspec.DecodeError) as error:
            fix = "make it readable" if isinstance(error, OSError) else "restore or delete the file"
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"pin: {path} cannot be read: {reason}; {fix}") from None

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
        """Yield ``(name, server, tool)`` of each held definition; see `name_of`."""
        for server, tools in sorted(self.held.items()):
            for tool in sorted(tools):
                yield name_of(server, tool), server, tool

    def accept(self, name: str) -> list[str]:
        """Approve the held definition of the tool ``name``, or of all tools of the server ``name``.

        Return the names of the approved tools; empty if ``name`` is not held. `write` stores the change.
        """
        accepted = []
        for each, server, tool in list(self.waiting()):
            if name in (each, server):
                self.approved.setdefault(server, {})[tool] = self.held[server].pop(tool)
                accepted.append(each)
        return accepted


def name_of(server: str, tool: str) -> str:
    """Return the name by which a user accepts a tool, ``server.tool``, without invisible characters."""
    return one_line(f"{server}.{tool}")


def changed(approved: Json | None, sent: Json) -> list[str]:
    """Return the fields in which two definitions differ; ``["name"]`` if ``approved`` is ``None`` (a new tool)."""
    if approved is None:
        return ["name"]
    # As JSON, because 1, 1.0 and True are equal in Python.
    return [key for key in _DEFINITION if _text(approved.get(key)) != _text(sent.get(key))]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


class Pins:
    """The approved definitions of one server's tools.

    The first listing that has tools is approved. After that, tools that are new or changed are held.

    Args:
        server: the name of the server in the file.
        place: the path of the file with the definitions; if True, they are only in this process.
        logger: receives a warning for each held tool.

    Raises `ConfigError` if the file cannot be read.
    """

    def __init__(self, server: str, place: bool | str, logger: Logger | LoggerAdapter[Any]) -> None:
        self._server, self._logger = server, logger
        self._path = Path(place) if isinstance(place, str) else None
        self._approved = {} if self._path is None else PinFile.read(self._path).approved.get(server, {})
        self._is_first = not self._approved
        self._held: dict[str, Json] = {}

    def approved(self, tool: Json) -> Json:
        """Return a listed tool with its approved definition, and hold the listed definition if it is different.

        A new tool is returned unchanged, and held unless this is the first listing, which is approved.
        """
        name = tool["name"]
        definition = {key: tool[key] for key in _DEFINITION if key in tool}
        if self._is_first:
            self._approved.setdefault(name, definition)
        known = self._approved.get(name)
        if changed(known, definition):
            self._held[name] = definition
        else:
            self._held.pop(name, None)
        return tool if known is None else {**{key: tool[key] for key in tool if key not in _DEFINITION}, **known}

    def knows(self, name: str) -> bool:
        """Return True if a definition of the tool is approved."""
        return name in self._approved

    def why_held(self, name: str, operation_id: str) -> str | None:
        """Return a message with the reason why a tool is held and what to do; ``None`` if it is not held.

        If the tool is held, log the message as a warning.
        """
        held = self._held.get(name)
        if held is None:
            return None
        known = self._approved.get(name)
        what = "it is new: the server's tools were approved before it had this one"
        if known is not None:
            what = f"its definition changed since it was approved ({', '.join(changed(known, held))})"
        how = "load the source again to accept it"
        if self._path is not None:
            accept = shlex.quote(name_of(self._server, name))
            how = f"review it with `operad pin`, accept it with `operad pin --accept {accept}`"
        reason = f'"{operation_id}" is held: {what}; {how}'
        self._logger.warning("%s", reason)
        return reason

    def keep(self, listed: Container[str]) -> None:
        """Finish a listing of the tools named ``listed``: forget other held tools, and update the file.

        Raises `ConfigError` if the file cannot be read or written.
        """
        self._is_first = not self._approved
        self._held = {name: sent for name, sent in self._held.items() if name in listed}
        if self._path is None:
            return
        file = PinFile.read(self._path)
        # What the file has is valid: the user may have accepted tools meanwhile.
        approved = file.approved.get(self._server) or self._approved
        held = {name: sent for name, sent in self._held.items() if changed(approved.get(name), sent)}
        before = file.approved.get(self._server, {}), file.held.get(self._server, {})
        if (approved, held) != before:
            file.approved[self._server], file.held[self._server] = approved, held
            file.write()
