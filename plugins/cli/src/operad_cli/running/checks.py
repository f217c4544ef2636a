"""The checks of ``operad doctor``: plugins, tables, sources, schemas, rules and the transport."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from operad import ConfigError, OperadError, OperationContext, OperationRegistry
from operad.plugin import Table
from operad_cli.options import chosen_profile, load_plugins_quietly, quiet_plugins
from operad_cli.output.errors import with_place
from operad_cli.running.schemas import MOST_SHOWN, Unchecked, errors_of_schemas

Status = Literal["ok", "warning", "error"]
_SINCE = 1_730_000_000
"""A clock before this time (October 2024, in seconds since the epoch) is wrong."""


@attrs.frozen
class Check:
    """The result of one check of ``what``. ``fix`` states how to fix an error or a warning, or is empty."""

    status: Status
    what: str
    message: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the check as a JSON object."""
        return attrs.asdict(self)


async def examine(path: Path | None, timeout: float) -> list[Check]:
    """Run all checks and return their results. Errors of the configuration are returned as results, not raised.

    Args:
        path: the configuration; if None, the installation alone is checked.
        timeout: seconds for each source, for the schemas and for the transport.
    """
    checks = [*_machine()]
    if path is None:
        checks += _plugins(load_plugins_quietly())
        fix = "create one with operad init, or use --config PATH or OPERAD_CONFIG"
        return [
            *checks,
            Check("warning", "configuration", "no operad.toml in this folder or a parent folder", fix),
        ]
    try:
        with quiet_plugins():
            registry = OperationRegistry.from_config(path, profile=chosen_profile(), sources=())
    except OperadError as error:
        return [*checks, Check("error", "configuration", str(error), f"fix it in {path}")]
    checks += _plugins(registry.plugins)
    configuration = registry.configuration
    assert configuration is not None
    has = _count(len(configuration.sources), "source")
    fix = "" if configuration.sources else "add [sources.NAME] tables, see operad init"
    checks.append(Check("warning" if fix else "ok", "configuration", f"{path}, {has}", fix))
    checks += _tables(registry)
    async with registry:
        with _warnings_of_sources() as collected:
            found = await asyncio.gather(*(_source(registry, name, timeout) for name in configuration.sources))
        rest = [*_schemas(registry, timeout), *_credentials(registry)]
        if all(check.status != "error" for check in found):
            rest += await _rules(registry)
    for check, name in zip(found, configuration.sources, strict=True):
        checks.append(check)
        checks += [Check("warning", check.what, line) for line in collected.get(name, ())]
    return [*checks, *rest, *await _transport(registry, timeout)]


def _machine() -> Iterator[Check]:
    versions = [f"{name} {version}" for name, version in _distributions()]
    yield Check("ok", "versions", f"Python {platform.python_version()} on {sys.platform}; {', '.join(versions)}")
    if (now := time.time()) < _SINCE:
        yield Check(
            "error", "clock", f"the time is {time.ctime(now)}", "set the clock: deadlines and tokens depend on it"
        )


def _distributions() -> list[tuple[str, str]]:
    found = {
        (point.dist.name, point.dist.version)
        for group in ("operad", "console_scripts")
        for point in importlib.metadata.entry_points(group=group)
        if point.dist is not None and (group == "operad" or point.name == "operad")
    }
    return sorted({("operad", importlib.metadata.version("operad")), *found})


def _plugins(plugins: Any) -> Iterator[Check]:
    for record in plugins.records:
        if record.status in ("loaded", "disabled"):
            yield Check("ok", f"plugin {record.name}", record.status)
        else:
            yield Check("error", f"plugin {record.name}", record.status, record.error or "")


def _tables(registry: OperationRegistry) -> Iterator[Check]:
    """Check the tables that are only read when something is served."""
    yield from _calls(registry)
    yield from _serving(registry)
    contributed: dict[str, Any] = {}
    for tables in registry.plugins.implementations("operad_tables"):
        try:
            contributed.update({table.name: table for table in tables()})
        except Exception as error:  # noqa: BLE001  # an error of one plugin must not hide the rest
            yield Check("warning", "plugin", f"operad_tables raised {type(error).__name__}: {error}")
    for name, table in contributed.items():
        yield from _broken(name, partial(_contributed, registry, table))
    if "hub" not in contributed:
        yield from _unread(registry, "hub", "operad-websocket")


def _broken(table: str, read: Callable[[], object]) -> Iterator[Check]:
    try:
        read()
    except OperadError as error:
        yield Check("error", table, str(error), f"fix [{table}]")


def _calls(registry: OperationRegistry) -> Iterator[Check]:
    """Check ``[calls]``, if operad-calls is installed."""
    try:
        from operad_calls import CallSettings
    except ModuleNotFoundError:
        yield from _unread(registry, "calls", "operad-calls")
        return
    yield from _broken("calls", lambda: registry.configured("calls", CallSettings))


def _serving(registry: OperationRegistry) -> Iterator[Check]:
    """Check ``[serve]`` and the tables in it, if operad-serve is installed."""
    try:
        from operad_serve.door.options import problems
    except ModuleNotFoundError:
        yield from _unread(registry, "serve", "operad-serve")
        return
    for table, error in problems(registry):
        yield Check("error", table, str(error), f"fix [{table}]")


def _credentials(registry: OperationRegistry) -> Iterator[Check]:
    """Warn about operations that a server offers to callers without credentials. The sources must be loaded."""
    try:
        from operad_serve.door.options import open_operations
    except ModuleNotFoundError:
        return
    found = open_operations(registry)
    if found is not None:
        fix = "add [[serve.tokens]], or remove anonymous = true; or restrict them with [sources.NAME.access]"
        yield Check("warning", "credentials", found, fix)
    if registry.configuration is not None and registry.configuration.values("hub").get("anonymous") is True:
        yield Check("warning", "hub", "clients may connect without credentials", "remove anonymous = true")


async def _rules(registry: OperationRegistry) -> list[Check]:
    """Warn about rules that match no operation, such as misspelt ones. The sources must be loaded."""
    written: Any = registry.configuration.tables.get("rules", ()) if registry.configuration is not None else ()
    explain = "operad.rules.explain"  # of operad-rules
    if registry.get_spec(explain) is None:
        return []
    context, matching = OperationContext(trusted=True), set[int]()
    for spec in registry.specs():
        envelope = await registry.execute(explain, {"operation": spec.id}, context)
        matching.update(rule["rule"] for rule in envelope.data)
    return [
        Check("warning", "rules", f"[[rules]] {number} matches no operation", "compare its match with operad list")
        for number, rule in enumerate(written, 1)
        if number not in matching and not rule.get("hide")  # what a rule hides is no longer there to be matched
    ]


def _schemas(registry: OperationRegistry, seconds: float) -> Iterator[Check]:
    """Check the published schemas of all operations. A wrong schema is a warning, because its operation works."""
    number = 0
    try:
        for operation_id, message in errors_of_schemas(registry.specs(), seconds):
            number += 1
            if number <= MOST_SHOWN:
                yield Check("warning", f"schema of {operation_id}", message, "its author must correct it")
    except ModuleNotFoundError:
        yield Check("ok", "schemas", "not checked: jsonschema is not installed", "pip install operad-cli[schemas]")
    except Unchecked as error:
        yield Check("warning", "schemas", str(error))
    else:
        if not number:
            yield Check("ok", "schemas", "valid by the meta-schema of their draft")
    if number > MOST_SHOWN:
        yield Check("warning", "schemas", f"further schemas that are not JSON Schema: {number - MOST_SHOWN}")


def _unread(registry: OperationRegistry, table: str, distribution: str) -> Iterator[Check]:
    """Warn about a table that no installed plugin reads."""
    configuration = registry.configuration
    if configuration is not None and table in configuration.tables:
        where = configuration.where(table)
        message = f"no installed plugin uses this table @ {where}"
        yield Check("warning", table, message, f"pip install {distribution}")


def _contributed(registry: OperationRegistry, table: Table) -> None:
    """Read a table as its plugin does, and raise its error."""
    configuration = registry.configuration
    assert configuration is not None
    if table.name not in configuration.tables:
        return
    if isinstance(configuration.tables[table.name], list):
        configuration.array(table.name, table.config_type)
        return
    read = registry.configured(table.name, table.config_type)
    if table.check is not None:
        try:
            table.check(read, configuration.base_dir)
        except ConfigError as error:
            raise configuration.placed(error, table.name) from None


_source_of: ContextVar[str | None] = ContextVar("source", default=None)
"""The source being loaded, in its task and in the tasks started from there."""


@contextmanager
def _warnings_of_sources() -> Iterator[dict[str, list[str]]]:
    """Collect the warnings of sources by name instead of printing them."""
    collected: dict[str, list[str]] = {}

    class Kept(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            name = _source_of.get()
            if name is None or record.levelno < logging.WARNING:
                return True
            if not str(record.msg).startswith("source %s is not loaded"):  # the check reports that itself
                collected.setdefault(name, []).append(" ".join(record.getMessage().split()))
            return False

    kept = Kept()
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(kept)
    try:
        yield collected
    finally:
        for handler in handlers:
            handler.removeFilter(kept)


async def _source(registry: OperationRegistry, name: str, timeout: float) -> Check:
    what = f"source {name}"
    _source_of.set(name)  # each source is checked in its own task
    began = time.monotonic()
    before = len(registry)
    try:
        async with asyncio.timeout(timeout):
            await registry.load_configured([name])
    except TimeoutError:
        return Check(
            "error", what, f"not loaded within {timeout:g} s", "check that its server is running; see --timeout"
        )
    except OperadError as error:
        return Check("error", what, str(error))
    failed = next((failure for failure in registry.failures if failure.name == name), None)
    if failed is not None:
        return Check("error", what, with_place(registry, failed))
    took = f"{time.monotonic() - began:.1f} s"
    if not any(spec for spec in registry.specs()) or len(registry) == before:
        return Check("warning", what, f"loaded ({took}), but it has no operations")
    return Check("ok", what, f"loaded ({took})")


async def _transport(registry: OperationRegistry, timeout: float) -> list[Check]:
    try:
        options = dict(registry.transport_options)
        url = options.pop("url", None)
        if url is None:
            return []
        transport = registry.plugins.transport(url, **options)
        async with asyncio.timeout(timeout):
            link = await transport.open(lambda event, delivery: None, lambda state, epoch: None)
            await link.close()
    except (OperadError, ConfigError) as error:
        place = _place(registry)
        return [Check("error", "transport", f"{error}{place}", "start its server, or fix [transport]")]
    except TimeoutError:
        message = f"no response within {timeout:g} s"
        return [Check("error", "transport", message, "check that its server is running")]
    return [Check("ok", "transport", "connected")]


def _place(registry: OperationRegistry) -> str:
    configuration = registry.configuration
    return "" if configuration is None else f" @ {configuration.where('transport')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
