"""The operations of an MCP server, made from its tools, resources, resource templates and prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from operad import CallError, ErrorCode
from operad_mcp.client.about import About
from operad_mcp.client.items import AnyOperation, Json, Maker, all_pages, nested, safe
from operad_mcp.client.prompts import Prompts
from operad_mcp.client.resources import Resources
from operad_mcp.client.sessions import CallerSessions
from operad_mcp.client.tools import Tools, own_name
from operad_mcp.pins import Pins
from operad_mcp.wire.connection import Connection

_METHOD_NOT_FOUND = -32601
_AT_ONCE = 100
"""The number of listed items that become operations, in some milliseconds, before the event loop runs."""
LISTS = ("tools", "resourceTemplates", "resources", "prompts")


class Offer:
    """The operations of one server. If a listed item did not change, its operation is the same object as before.

    Args:
        connection: the connection that lists the operations.
        namespace: the namespace of the operations.
        prefix: the prefix of their names.
        sessions: the sessions of callers if each call uses the credential of its caller, otherwise ``None``.
    """

    def __init__(
        self, connection: Connection, namespace: str, prefix: str = "", sessions: CallerSessions | None = None
    ) -> None:
        self._connection = connection
        self._config = connection.config
        self._logger = connection.logger
        self._prefix = prefix
        maker = Maker(connection, namespace, prefix, sessions)
        self._tools, self._prompts = Tools(maker), Prompts(maker)
        self._resources, self._about = Resources(maker), About(maker)
        server = f"{namespace}.{prefix}".rstrip(".")
        self._pins = Pins(server, self._config.pin, self._logger) if self._config.pin else None
        # What was made of which item of the newest listing, by kind and name.
        self._made: dict[str, dict[str, tuple[Any, AnyOperation | None]]] = {}
        self._fixed: dict[str, AnyOperation] = {}
        self._capabilities: Json = {}
        self._listed: dict[str, list[Any]] = {}
        # Why tools are held: the ids of their operations, and the reasons, by the names of the tools.
        self._held: dict[str, tuple[str, str]] = {}
        self.tools: Sequence[AnyOperation] = ()
        self.resources: Sequence[AnyOperation] = ()
        self.prompts: Sequence[AnyOperation] = ()
        self.about: Sequence[AnyOperation] = ()

    @property
    def held(self) -> dict[str, str]:
        """The reasons why tools are held, by the ids of their operations."""
        return dict(self._held.values())

    @property
    def operations(self) -> list[AnyOperation]:
        """All operations. If two have the same id, the first is used, and a warning is logged."""
        merged: dict[str, AnyOperation] = {}
        for operation in (*self.tools, *self.resources, *self.prompts, *self.about):
            if operation.id in merged:
                self._logger.warning("%s is offered twice; the first is used", operation.id)
            else:
                merged[operation.id] = operation
        return list(merged.values())

    # --- listings ----------------------------------------------------------------------------------

    async def refresh(self, what: str = "all") -> None:
        """Load the listing of ``tools``, ``resources``, ``prompts`` or ``all`` of them, and make the operations.

        Raises:
            CallError: the server cannot be reached, or its tools cannot be listed.
            ConfigError: the file of ``pin``, or another file in the configuration, cannot be used.
        """
        live = await self._connection.open()
        config, offered = self._config, live.capabilities
        listed: dict[str, list[Any]] = {}
        if what in ("all", "tools") and config.tools:
            # A server that declares no capabilities may still have tools, as some old ones do.
            required = "tools" in offered or not offered
            listed["tools"] = await self._list("tools/list", "tools", required=required)
        # Many servers declare resources and prompts and have none: then there is nothing to offer.
        if what in ("all", "resources") and config.resources and "resources" in offered:
            templates = await self._list("resources/templates/list", "resourceTemplates")
            listed["resourceTemplates"] = templates
            listed["resources"] = [] if templates else await self._list("resources/list", "resources")
        if what in ("all", "prompts") and config.prompts and "prompts" in offered:
            listed["prompts"] = await self._list("prompts/list", "prompts")
        self._capabilities = offered
        await self._take(listed)

    async def restore(self, capabilities: Json, listed: Mapping[str, list[Any]]) -> None:
        """Make the operations of a remembered listing, without a connection.

        Raises `ConfigError` if the file of ``pin`` cannot be read or written.
        """
        self._capabilities = capabilities
        await self._take({name: listed[name] for name in LISTS if isinstance(listed.get(name), list)})

    def remembered(self) -> tuple[Json, dict[str, list[Any]]]:
        """Return the arguments for `restore`: the capabilities and the listings of the server.

        If ``pin`` is set, the listed tools are those with an approved definition, and have that definition.
        """
        tools = self._listed.get("tools")
        if self._pins is None or tools is None:
            return self._capabilities, self._listed
        pinned = [self._pins.approved(tool) for tool in tools if is_named(tool) and self._pins.knows(tool["name"])]
        return self._capabilities, {**self._listed, "tools": pinned}

    async def _take(self, listed: dict[str, list[Any]]) -> None:
        self._listed = {**self._listed, **listed}
        if "tools" in listed:
            self.tools = await self._each("tool", listed["tools"], self._tool)
            if self._pins is not None:
                names = self._made["tool"].keys()
                self._held = {name: held for name, held in self._held.items() if name in names}
                self._pins.keep(names)
        if "resourceTemplates" in listed:
            templates = listed["resourceTemplates"]
            fixed = self._resources.fixed(self._capabilities) if templates or listed.get("resources") else []
            made = await self._each("template", templates, self._resources.template)
            self.resources = [*self._kept(fixed), *made]
        if "prompts" in listed:
            fixed = self._prompts.fixed() if listed["prompts"] else []
            made = await self._each("prompt", listed["prompts"], self._prompts.prompt)
            self.prompts = [*self._kept(fixed), *made]
        if self._config.server_operations:
            self.about = self._kept(self._about.fixed(self._capabilities))
        if "tools" in listed and self._config.overrides:
            offered = [tool.get("name") for tool in listed["tools"] if isinstance(tool, dict)]
            for name in self._config.overrides.keys() - set(map(str, offered)):
                self._logger.warning("overrides name %s, which the server does not offer; correct the name", name)

    async def _list(self, method: str, key: str, *, required: bool = False) -> list[Any]:
        try:
            return await all_pages(self._connection, method, key)
        except CallError as error:
            if required:
                raise
            # A server that declares a capability may not support all of its methods.
            code = error.details.get("jsonrpcCode") if isinstance(error.details, dict) else None
            if error.code != ErrorCode.EXECUTION_ERROR or code != _METHOD_NOT_FOUND:
                self._logger.warning("%s cannot be listed: %s", key, error)
            return []

    # --- items -> operations -------------------------------------------------------------------------

    def _tool(self, tool: Json) -> AnyOperation | None:
        if self._pins is None:
            return self._tools.make(tool)
        name, made = tool["name"], self._tools.make(self._pins.approved(tool))
        if made is not None and (reason := self._pins.why_held(name, made.id)) is not None:
            self._held[name] = made.id, reason
            return None
        self._held.pop(name, None)
        return made

    async def _each(
        self, kind: str, items: Iterable[Any], make: Callable[[Json], AnyOperation | None]
    ) -> list[AnyOperation]:
        """Return an operation for each item. An invalid item is left out with a warning."""
        before, now = self._made.get(kind, {}), dict[str, tuple[Any, AnyOperation | None]]()
        made: dict[str, AnyOperation] = {}
        for number, item in enumerate(sorted(items, key=_is_renamed)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # a server may have very many, and other calls must not wait
            name = item["name"] if is_named(item) else None
            if name is None:
                self._logger.warning("a %s without a name is left out: %.200r", kind, item)
                continue
            known = before.get(name)
            try:
                operation = known[1] if known is not None and known[0] == item else make(item)
            except Exception as error:  # noqa: BLE001  # whatever is wrong with it, it is this item's alone
                self._logger.warning("the %s %r is left out: %s", kind, name, error)
                continue
            if name in now or (operation is not None and operation.id in made):
                self._logger.warning("%s is offered twice; the first is used", name)
                continue
            now[name] = (item, operation)
            if operation is not None and self._wanted(operation):
                made[operation.id] = operation
        # Forget items that are no longer listed: a server may change forever.
        self._made[kind] = now
        return list(made.values())

    def _wanted(self, operation: AnyOperation) -> bool:
        name = operation.spec.name.removeprefix(self._prefix)
        include, exclude = self._config.include, self._config.exclude
        # A server chooses the names of its operations, which must not bypass the user's filters.
        own = str(nested(operation.spec.metadata, "mcp", "name"))
        return (include is None or any(fnmatchcase(name, pattern) for pattern in include)) and not any(
            fnmatchcase(each, pattern) for pattern in exclude for each in (name, own)
        )

    def _kept(self, operations: Iterable[AnyOperation]) -> list[AnyOperation]:
        """Return operations that are not items of a listing, as the same objects each time, after the filters."""
        known = [self._fixed.setdefault(operation.id, operation) for operation in operations]
        return [operation for operation in known if self._wanted(operation)]


def _is_renamed(item: Any) -> bool:
    """Return True if the operation of an item has another name than the item.

    Items whose names are kept are read first, so that they take precedence.
    """
    return is_named(item) and (safe(item["name"]) != item["name"] or own_name(item) != item["name"])


def is_named(item: Any) -> bool:
    """Return True if an item of a listing is an object with a name that is not empty."""
    return isinstance(item, dict) and isinstance(item.get("name"), str) and bool(item["name"])
