"""The files in which MCP hosts keep their servers: Claude Desktop and Code, Cursor, VS Code, and others."""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from operad import ConfigError
from operad_mcp.config import MCPAuth, MCPClientConfig

Json = dict[str, Any]
logger = logging.getLogger("operad.mcp")
_TRANSPORTS: Mapping[str, Literal["http", "sse"]] = {
    "http": "http", "streamable-http": "http", "streamableHttp": "http", "streamable_http": "http",
    "remote": "http", "sse": "sse",
}  # fmt: skip
_URL_KEYS = ("url", "serverUrl", "httpUrl")
_EXCLUDED = ("disabledTools", "excludeTools", "disabled_tools")
_INCLUDED = ("includeTools", "enabledTools", "enabled_tools")
_KEYS = {
    "command", "args", "env", "envFile", "cwd", "headers", "type", "transport", "disabled", "enabled", "oauth",
    *_URL_KEYS, *_EXCLUDED, *_INCLUDED,
}  # fmt: skip
_TYPES = (
    ("command", str, "a string"), ("args", list, "a list"), ("env", dict, "an object"),
    ("headers", dict, "an object"), ("cwd", str, "a string"),
)  # fmt: skip
# What a host may do without asking its user, and what it shows of a server, is ignored here.
_HOSTS_OWN = {
    "alwaysAllow", "autoApprove", "trust", "description", "icon", "name", "title", "gallery", "version", "dev",
    "note", "sandboxEnabled", "sandbox", "id",
}  # fmt: skip
_FOLDERS = (".vscode", ".cursor", ".claude", ".gemini", ".roo", ".kiro")
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def load_mcp_servers(
    path: str | Path,
    *,
    inputs: Mapping[str, str] | None = None,
    name: str | None = None,
    failures: dict[str, ConfigError] | None = None,
) -> dict[str, MCPClientConfig]:
    """Return the servers in a file of an MCP host, without those that are disabled.

    Comments and trailing commas are accepted. The servers are under ``mcpServers``, ``servers`` (which may be a
    list of entries with names), or ``mcp.servers``, or they are the whole document.

    ``${VAR}``, ``${env:VAR}`` and ``${VAR:-default}`` come from the environment. ``${workspaceFolder}`` is the
    file's folder, or the folder above ``.vscode``, ``.cursor`` and the like. ``${userHome}`` is the user's home.
    ``${input:id}`` comes from ``inputs``. If ``inputs`` lacks it, the user is asked on the terminal.

    Args:
        path: the path of the file.
        inputs: values for the inputs that the file asks for, by id.
        name: the only server to return. Variables and inputs of other servers then need no values.
        failures: receives, by name, the error of each unusable entry; if ``None``, the first such error is raised.

    Raises:
        ConfigError: the file cannot be read or lacks the server ``name``, or an entry cannot be used.
    """
    file = Path(path)
    document = _document(file)
    found, where = _servers(document)
    if where and not isinstance(found, dict):
        got = "a list of other values" if isinstance(found, list) else type(found).__name__
        raise ConfigError(f"{path}: {where[:-1]}: expected servers by name, or a list with their names, got {got}")
    if not isinstance(found, dict):
        got = type(document).__name__
        if isinstance(document, dict):
            got = f"an object with {', '.join(map(str, list(document)[:5])) or 'no keys'}"
        raise ConfigError(f'{path}: expected an object with "mcpServers", "servers" or "mcp.servers", got {got}')
    if name is not None and name not in found:
        raise ConfigError(f'{path} has no server "{name}"; it has {", ".join(sorted(found)) or "no servers"}')
    values = Values(file, document.get("inputs") if isinstance(document, dict) else None, inputs or {})
    servers: dict[str, MCPClientConfig] = {}
    for server, entry in found.items():
        if name not in (None, server) or _is_off(entry):
            continue
        try:
            servers[server] = _server(entry, f"{path}: {where}{server}", values)
        except ConfigError as error:
            if failures is None:
                raise
            failures[server] = error
    return servers


def _document(path: Path) -> Any:
    try:
        return _loads(_read(path))
    except (OSError, ValueError, RecursionError) as error:
        hint = "; write a backslash inside a string twice" if "escape" in str(error) else ""
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read as JSON: {reason}{hint}") from error


def _servers(document: Any) -> tuple[Any, str]:
    """Return the entries by name, and the prefix of a name in messages."""
    if not isinstance(document, dict):
        return None, ""
    inner = document.get("mcp")  # settings.json of VS Code
    places = [(document, "mcpServers", ""), (document, "servers", ""), (inner, "servers", "mcp.")]
    for place, key, before in places:
        if isinstance(place, dict) and key in place:
            return _by_name(place[key]), f"{before}{key}."
    is_plain = document and all(map(_is_entry, document.values()))
    return (document if is_plain else None), ""


def _by_name(found: Any) -> Any:
    """Return a list of named entries as an object by name; anything else unchanged."""
    if not isinstance(found, list) or not all(
        _is_entry(item) and isinstance(item.get("name"), str) for item in found
    ):
        return found
    return {item["name"]: item for item in found}


def _is_entry(found: Any) -> bool:
    return isinstance(found, dict) and any(key in found for key in ("command", *_URL_KEYS))


def _is_off(entry: Any) -> bool:
    return isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False)


class Values:
    """The values of ``${…}`` in a file.

    Args:
        path: the path of the file.
        asked: the ``inputs`` of the file, which describe the values to ask for.
        given: the known values of inputs, by id.
    """

    def __init__(self, path: Path, asked: Any, given: Mapping[str, str]) -> None:
        folder = path.absolute().parent
        self.workspace = folder.parent if folder.name in _FOLDERS else folder
        """The folder to which the file belongs, and to which its paths are relative."""
        items = asked if isinstance(asked, list) else []
        self._asked = {item["id"]: item for item in items if isinstance(item, dict) and "id" in item}
        self._given = dict(given)

    def expanded(self, value: Any, where: str) -> Any:
        """Return a value of the file with all variables filled in. ``where`` names its place in messages.

        Raises `ConfigError` if an environment variable is not set, or an input cannot be asked for.
        """
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._one(match[1], where), value)
        if isinstance(value, dict):
            return {key: self.expanded(item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self.expanded(item, where) for item in value]
        return value

    def _one(self, name: str, where: str) -> str:
        known: Mapping[str, Callable[[], str]] = {
            "workspaceFolder": lambda: str(self.workspace),
            "workspaceFolderBasename": lambda: self.workspace.name,
            "userHome": lambda: str(Path.home()),
            "pathSeparator": lambda: os.sep,
            "/": lambda: os.sep,
        }
        if name in known:
            return known[name]()
        if name.startswith("input:"):
            return self._input(name.removeprefix("input:"), where)
        variable, is_optional, default = name.removeprefix("env:").partition(":-")
        found = os.environ.get(variable, default if is_optional else None)
        if found is None:
            raise ConfigError(f"{where}: the environment variable {variable} is required but not set; set it")
        return found

    def _input(self, name: str, where: str) -> str:
        if name not in self._given:
            self._given[name] = self._ask(name, where)
        return self._given[name]

    def _ask(self, name: str, where: str) -> str:
        import getpass
        import sys

        described = self._asked.get(name, {})
        text = str(described.get("description") or name)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigError(
                f"{where} needs the input {name!r} ({text}), and this process has no terminal to ask for it; "
                f'set inputs = {{ "{name}" = "…" }}'
            )
        default = str(described.get("default") or "")
        # The typed text is hidden, because it may be a secret, unless the file marks it as not secret.
        if described.get("password") is False:
            sys.stderr.write(f"{where}: {text}: ")
            sys.stderr.flush()
            return sys.stdin.readline().rstrip("\n") or default
        return getpass.getpass(f"{where}: {text}: ") or default


def _server(entry: Any, where: str, values: Values) -> MCPClientConfig:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected an object, got {type(entry).__name__}")
    _warn(entry, where)
    entry = values.expanded({key: value for key, value in entry.items() if key in _KEYS}, where)
    url = next((entry[key] for key in _URL_KEYS if entry.get(key)), None)
    for key, kind, expected in _TYPES:
        if entry.get(key) is not None and not isinstance(entry[key], kind):
            raise ConfigError(f"{where}.{key}: expected {expected}, got {type(entry[key]).__name__}")
    options: Json = {"command": entry.get("command"), "url": url, **_filters(entry, where)}
    if url is not None:
        options |= _remote(entry, where)
    else:
        options |= _program(entry, where, values.workspace)
    try:
        return MCPClientConfig(**options)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _remote(entry: Json, where: str) -> Json:
    kind: Any = entry.get("type", entry.get("transport", "http"))
    if isinstance(kind, dict):
        kind = kind.get("type", "http")
    if not isinstance(kind, str) or kind not in _TRANSPORTS:
        raise ConfigError(
            f"{where}.type: expected one of {', '.join(_TRANSPORTS)} for a server with a url, got {kind!r:.80}"
        )
    return {
        "transport": _TRANSPORTS[kind],
        "headers": _texts(entry.get("headers")),
        "auth": _oauth(entry.get("oauth"), where),
    }


def _oauth(found: Any, where: str) -> MCPAuth | None:
    if found in (None, False):
        return None
    if not isinstance(found, dict):
        raise ConfigError(f"{where}.oauth: expected an object, got {type(found).__name__}")
    port = found.get("callbackPort")
    redirect: Json = {} if port is None else {"redirect_uri": f"http://localhost:{port}/callback"}
    scopes = found.get("scopes", found.get("scope"))
    try:
        return MCPAuth(
            type="oauth",
            client_id=found.get("clientId"),
            client_secret=found.get("clientSecret"),
            issuer=found.get("issuer"),
            scope=" ".join(map(str, scopes)) if isinstance(scopes, list) else scopes,
            **redirect,
        )
    except ConfigError as error:
        raise ConfigError(f"{where}.oauth: {error}") from error


def _program(entry: Json, where: str, folder: Path) -> Json:
    environment: dict[str, str] = {}
    if entry.get("envFile") is not None:
        file = folder / str(entry["envFile"])
        try:
            environment = _variables(_read(file))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{where}.envFile: {file} cannot be read: {reason}") from None
    environment |= _texts(entry.get("env"))
    return {
        "args": [_text(argument) for argument in entry.get("args") or () if argument is not None],
        "env": environment,
        "cwd": str(folder / entry["cwd"]) if entry.get("cwd") else str(folder),
    }


def _texts(found: Json | None) -> dict[str, str]:
    """Return values as texts: strings unchanged, other values as JSON. Values that are ``null`` are left out."""
    return {name: _text(value) for name, value in (found or {}).items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _filters(entry: Json, where: str) -> Json:
    """Return the options ``include`` and ``exclude`` for the tools that the user enabled or disabled."""
    filters: Json = {}
    for option, keys in (("exclude", _EXCLUDED), ("include", _INCLUDED)):
        for key in keys:
            found = entry.get(key)
            if found is None:
                continue
            if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
                raise ConfigError(f"{where}.{key}: expected a list of names, got {found!r:.80}")
            filters[option] = [*filters.get(option, ()), *found]
    return filters


def _warn(entry: Json, where: str) -> None:
    ignored = sorted(entry.keys() - _KEYS - _HOSTS_OWN)
    if not ignored:
        return
    hint = "; set timeout in the options of the source, in seconds" if "timeout" in ignored else ""
    logger.warning("%s: unknown keys are ignored: %s%s", where, ", ".join(ignored), hint)


# --- JSON with comments, as editors write it; files of environment variables ----------------------------------


def _read(path: Path) -> str:
    """Return the text of a file: UTF-8, or by its byte order mark. Raises `OSError` or `ValueError` otherwise."""
    content = path.read_bytes()
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as Windows' shell writes files
    return content.decode("utf-16" if wide else "utf-8-sig")


def _loads(text: str) -> Any:
    """Return the value of a text. Raises `ValueError`, with the line of the original text."""
    try:
        return json.loads(text)
    except ValueError:
        # Comments become white space, so that the lines in errors are right.
        bare = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
        return json.loads(_COMMA.sub(lambda match: match[1] or " ", bare))


def _variables(text: str) -> dict[str, str]:
    """Return the variables of a ``.env`` file: ``NAME=value`` per line, or raise `ValueError`."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: expected NAME=value, got other text; correct or remove the line")
        found[match[1]] = _env_value(match[2])
    return found


def _env_value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])
    return re.split(r"\s#", text)[0].rstrip()
