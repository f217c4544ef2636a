"""Sources named on the command line, for use without a configuration."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

import attrs
import click

from operad import ConfigError, OperationRegistry

_URL = re.compile(r"https?://", re.IGNORECASE)


@attrs.frozen
class AdHocSources:
    """The sources of a command line: ``--openapi``, ``--mcp-server``, ``--base-url`` and ``--header``."""

    openapi: tuple[str, ...] = ()
    mcp_servers: tuple[str, ...] = ()
    base_url: str | None = None
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.openapi or self.mcp_servers)

    def check(self) -> None:
        """Raise `click.UsageError` if ``--base-url`` lacks its one ``--openapi``, or ``--header`` lacks a URL."""
        if self.base_url is not None and len(self.openapi) != 1:
            raise click.UsageError(f"--base-url requires exactly one --openapi, got {len(self.openapi)}")
        places = (*self.openapi, *self.mcp_servers, self.base_url or "")
        if self.headers and not any(_URL.match(place) for place in places):
            raise click.UsageError("--header requires an --openapi or --mcp-server that is a URL, or --base-url")

    async def load(self, registry: OperationRegistry) -> None:
        """Load the sources in order, each into a new namespace. Raise the error of the first source that fails."""
        taken: set[str] = set()
        for spec in self.openapi:
            options: dict[str, Any] = {} if self.base_url is None else {"base_url": self.base_url}
            if self.headers:
                options["headers"] = dict(self.headers)
            await registry.load("openapi", namespace=_namespace(spec, taken), spec=spec, **options)
        for server in self.mcp_servers:
            if _URL.match(server):
                where: dict[str, Any] = {"url": server, "headers": dict(self.headers)}
            else:
                command, *arguments = _words(server)
                where = {"command": command, "args": arguments}
            await registry.load("mcp", namespace=_namespace(server, taken), **where)

    def arguments(self) -> list[str]:
        """Return the sources as arguments of a command, without headers. Paths of documents are made absolute.

        Raises `ConfigError` if the file of an ``--openapi`` does not exist.
        """
        for spec in self.openapi:
            if not _URL.match(spec) and not Path(spec).expanduser().is_file():
                raise ConfigError(f"--openapi: file not found: {spec}; give a file, or a URL with https://")
        words = [word for spec in self.openapi for word in ("--openapi", _absolute(spec))]
        words += [word for server in self.mcp_servers for word in ("--mcp-server", server)]
        return words + ([] if self.base_url is None else ["--base-url", self.base_url])


def header_pair(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of ``--header NAME=VALUE``, with ``${NAME}`` replaced from the environment.

    Raises `click.BadParameter` if a header is not valid, or an environment variable is not set.
    """
    pairs = []
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            # The value is not quoted: it may be a secret.
            raise click.BadParameter("expected NAME=VALUE, such as 'Authorization=Bearer ${TOKEN}'")
        pairs.append((name, from_environment(name, text)))
    return tuple(pairs)


def from_environment(name: str, text: str) -> str:
    """Return ``text`` with the values of environment variables in place of each ``${NAME}``.

    Raises `click.BadParameter` if a variable is not set, or for a ``$`` that is not in ``${NAME}`` or ``$$``. The
    message begins with ``name``, the option or header.
    """
    try:
        return Template(text).substitute(os.environ)
    except (KeyError, ValueError) as error:
        reason = (
            f"environment variable {error} is required but not set; set it, or"
            if isinstance(error, KeyError)
            else "expected ${NAME}, got a single $;"
        )
        raise click.BadParameter(f"{name}: {reason} write $$ for $") from None


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--mcp-server: cannot parse the command: {error}; quote it as in a shell") from None
    if not words:
        raise ConfigError("--mcp-server: expected a command or a URL, got nothing")
    return words


def _absolute(spec: str) -> str:
    return spec if _URL.match(spec) else os.path.abspath(Path(spec).expanduser())


_GENERIC = {"openapi", "swagger", "index", "api", "spec", "schema", "mcp", "json", "yaml", "latest", ""}


def _namespace(where: str, taken: set[str]) -> str:
    """Return a new namespace: the first specific word in the name of the file, package or host."""
    if _URL.match(where):
        parts = urlsplit(where)
        last = re.sub(r"\.\w+$", "", parts.path.rstrip("/").rpartition("/")[2])
        host = [part for part in (parts.hostname or "").split(".") if part not in ("www", "api", "localhost")]
        words = [last, *([] if re.fullmatch(r"[\d.:]+", parts.hostname or "") else host)]
    else:
        last = where.split()[-1] if " " in where else where
        named = [word for word in where.split()[1:] if not word.startswith("-")] or [last]
        words = [re.sub(r"\.\w+$", "", named[0].rstrip("/").rpartition("/")[2])]
    words = [re.sub(r"[^A-Za-z0-9_]+", "-", word).strip("-").lower() for word in words]
    words = [re.sub(r"^(mcp[-_])?(server[-_])?|([-_]mcp)?([-_]server)?$", "", word) for word in words]
    name = base = next((word for word in words if word not in _GENERIC), "mcp" if " " in where else "api")
    number = 2
    while name in taken:
        name, number = f"{base}{number}", number + 1
    taken.add(name)
    return name


def adhoc_options(command: Any) -> Any:
    """Add ``--openapi``, ``--mcp-server``, ``--base-url`` and ``--header`` to a command."""
    for option in reversed(
        (
            click.option(
                "--openapi",
                multiple=True,
                metavar="URL|PATH",
                help="Serve the API of this OpenAPI document. May be repeated.",
            ),
            click.option(
                "--base-url", metavar="URL", help="The URL of the API, if the document does not state it."
            ),
            click.option(
                "--header",
                "headers",
                multiple=True,
                metavar="NAME=VALUE",
                callback=header_pair,
                help="Send this header. ${NAME} is replaced from the environment.",
            ),
            click.option(
                "--mcp-server",
                "mcp_servers",
                multiple=True,
                metavar="COMMAND|URL",
                help="Serve this MCP server. May be repeated.",
            ),
        )
    ):
        command = option(command)
    return command
