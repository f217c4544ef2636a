"""The command ``operad init``, which writes a first configuration from the files of a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from operad_cli.options import output_options

_HOSTS = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
"""Files in which MCP hosts keep the servers of a project."""
_HEAD = 65_536
"""The number of characters at the beginning of a file that are searched for its kind."""
_PATIENCE = 5.0
"""Time limit for reading the title of a document from a URL, in seconds."""
_IS_DOCUMENT = re.compile(
    r"""^[\s{]*(?:["'][^"']*["']\s*:\s*["'][^"']*["']\s*,\s*)?["']?(?:openapi|swagger)["']?\s*:\s*["']?[23]""",
    re.M,
)
_TITLE = re.compile(r"""["']?\binfo["']?\s*:.{0,2000}?["']?\btitle["']?\s*:\s*["']?([^"'\n,]+)""", re.S)
_FASTAPI = re.compile(r"""["']?operationId["']?\s*:\s*["']?(\w+)""")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--openapi", multiple=True, metavar="URL|FILE", help="An OpenAPI document. May be repeated.")
@click.option("--mcp", multiple=True, metavar="FILE", help="An mcp.json of an MCP host. May be repeated.")
@click.option("--force", is_flag=True, help="Overwrite an existing operad.toml.")
@output_options
def init(folder: Path, openapi: tuple[str, ...], mcp: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Write an operad.toml with comments.

    It finds sources in FOLDER (default: the current folder): OpenAPI documents, an mcp.json, folders of functions.

    \b
    operad init
    operad init --openapi https://api.example.com/openapi.json
    """
    from operad import ConfigError
    from operad_cli.output.text import print_json, print_text, styled

    target = folder / "operad.toml"
    if target.exists() and not force:
        raise ConfigError(f"{target} exists; use --force to overwrite it")
    folder.mkdir(parents=True, exist_ok=True)
    sources = found_here(folder, openapi, mcp)
    target.write_text(configuration_text(sources), encoding="utf-8")
    if as_json:
        named = [{"name": source.name, "type": source.type, "what": source.what} for source in sources]
        print_json({"configuration": str(target), "sources": named})
        return 0
    print_text(f"Wrote {target} with these sources:")
    for source in sources:
        print_text(f"  {styled(source.name, 'bold')}  {source.type}, {source.what}")
    if not sources:
        print_text("  none: no OpenAPI document, mcp.json or folder of functions found")
    print_text("Next: operad doctor, then operad list")
    return 0


class Found(NamedTuple):
    """A file, folder or URL that can be a source."""

    name: str
    """The name of the table ``[sources.NAME]``."""
    type: str
    what: str
    """The file, folder or URL."""
    is_fastapi: bool = False
    """Whether an OpenAPI document has ids as FastAPI makes them."""


def found_here(folder: Path, openapi: Sequence[str], mcp: Sequence[str]) -> list[Found]:
    """Return the sources in a folder, with distinct names.

    If ``openapi`` or ``mcp`` is not empty, its files are used, and the folder is not searched for files of this
    kind. Raises `ConfigError` if one of them does not exist.
    """
    found: list[Found] = []
    for kind, what in _all(folder, openapi, mcp):
        head = _head(folder, what) if kind == "openapi" else ""
        name = base = _name(kind, what, head)
        number = 2
        while any(other.name == name for other in found):
            name, number = f"{base}-{number}", number + 1
        ids = _FASTAPI.findall(head)
        is_fastapi = bool(ids) and all(re.search(r"_(get|put|post|patch|delete|head)$", each) for each in ids)
        found.append(Found(name, kind, what, is_fastapi))
    return found


def _all(folder: Path, openapi: Sequence[str], mcp: Sequence[str]) -> Iterator[tuple[str, str]]:
    from operad import ConfigError

    for document in openapi:
        if "://" not in document and not (folder / document).is_file():
            raise ConfigError(f"--openapi: file not found: {document}; give a file, or a URL with https://")
        yield "openapi", document
    if not openapi:
        for path in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".yaml", ".yml")):
            if path.is_file() and _IS_DOCUMENT.search(_head(folder, path.name)):
                yield "openapi", path.name
    for host in mcp or [host for host in _HOSTS if (folder / host).is_file()]:
        if not (folder / host).is_file():
            raise ConfigError(f"--mcp: file not found: {host}; give the mcp.json of an MCP host")
        yield "mcp", host
    for path in sorted(folder.iterdir()):
        if not path.name.startswith((".", "_")) and _has_operations(path):
            yield "scanner", path.name


def _has_operations(path: Path) -> bool:
    files = path.glob("*.py") if path.is_dir() else [path] if path.suffix == ".py" else []
    return any(re.search(r"^@operation\b", file.read_text("utf-8", "replace"), re.M) for file in files)


def _head(folder: Path, what: str) -> str:
    """Return the beginning of a file or of a URL; empty if it cannot be read."""
    try:
        if "://" not in what:
            with (folder / what).open(encoding="utf-8", errors="replace") as file:
                return file.read(_HEAD)
        if not re.match(r"https?://", what, re.I):
            return ""
        import urllib.request

        with urllib.request.urlopen(what, timeout=_PATIENCE) as response:  # noqa: S310  # http and https alone
            data: bytes = response.read(_HEAD)
        return data.decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _name(kind: str, what: str, head: str) -> str:
    """Return the name of a source: the title of a document, else the name of the file or host."""
    if kind == "openapi" and (title := _TITLE.search(head)) is not None:
        words = re.findall(r"[A-Za-z0-9]+", title[1])
        words = [
            word
            for word in words
            if word.lower() not in ("api", "rest", "openapi", "swagger", "the", "v1", "v2", "v3")
        ]
        if words:
            return "-".join(words[:3]).lower()
    stem = what.partition("://")[2].split("/")[0] if "://" in what else Path(what).stem.lstrip(".")
    words = [word for word in re.split(r"[^A-Za-z0-9]+", stem) if word not in ("openapi", "swagger", "www", "com")]
    if "://" in what and re.fullmatch(r"[\d.:]+|localhost(:\d+)?", stem):
        words = []
    return "-".join(words).lower() or {"openapi": "api", "mcp": "servers"}.get(kind, kind)


def configuration_text(sources: Sequence[Found]) -> str:
    """Return an operad.toml with the sources, and with examples in comments."""
    parts = ["# What operad loads and serves. All keys: docs/configuration.md. Check it with `operad doctor`.\n"]
    parts += [f'[sources.{one.name}]\ntype = "{one.type}"\n{_KEYS[one.type](one)}' for one in sources]
    if not any(source.type == "openapi" for source in sources):
        parts.append(
            _commented("[sources.shop]", 'type = "openapi"', 'spec = "https://api.example.com/openapi.json"')
        )
    if not any(source.type == "mcp" for source in sources):
        server = 'args = ["-y", "@modelcontextprotocol/server-filesystem", "."]'
        parts.append(_commented("[sources.files]", 'type = "mcp"', 'command = "npx"', server))
    if not any(source.type == "scanner" for source in sources):
        parts.append(_commented("[sources.local]", 'type = "scanner"', 'path = "operations"'))
    parts.append(
        _commented("[serve]", 'http = "127.0.0.1:8000"   # OpenAPI, MCP and the explorer: operad serve')
        + _commented("[[serve.tokens]]", 'token = "${OPERAD_TOKEN}"', 'id = "me"', 'scopes = ["read"]')
    )
    return "\n".join(parts)


def _openapi(source: Found) -> str:
    names = '# names = "fastapi"                                         # list_items, not list_items_items_get\n'
    return (
        f"spec = {json.dumps(source.what)}\n"
        + (names if source.is_fastapi else "")
        + '# base_url = "https://api.example.com"                     # instead of the document\'s servers\n'
        '# auth = { type = "bearer", token = "${TOKEN}" }           # from the environment\n'
    )


_KEYS: dict[str, Callable[[Found], str]] = {
    "openapi": _openapi,
    "mcp": lambda source: f"config = {json.dumps(source.what)}\n",
    "scanner": lambda source: f"path = {json.dumps(source.what)}\n",
}


def _commented(*lines: str) -> str:
    return "".join(f"# {line}\n" for line in lines)
