"""Configurations as people break them: each named by `doctor` and by the command that meets it.

With the file, the line, what is wrong and what to do; never with a traceback, never with a secret.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operad_cli.running import checks
from plugins.cli.tests.conftest import Run

OPERATIONS = """
from operad import operation

@operation(namespace="text", type="query")
async def head(text: str) -> str:
    return text
"""
SECRET = "t0p-s3cret-value"

BROKEN = {
    "no TOML": ("[sources", "operad.toml"),
    "an unknown table": ("[source.a]", 'unknown table [source]; did you mean "sources"?'),
    "a table that is none": ("sources = 3", "[sources] has to be a table, got int"),
    "a source without type": ("[sources.a]\npath = 'x'", '[sources.a] needs a type, such as type = "openapi"'),
    "a type that nobody has": ("[sources.a]\ntype = 'graphql'", 'there is no source "graphql"'),
    "a misspelt type": ("[sources.a]\ntype = 'opanapi'", 'did you mean "openapi"?'),
    "an unknown key": ("[sources.a]\ntype = 'scanner'\npth = 'ops'", 'unknown key "pth"; did you mean "path"?'),
    "two unknown keys": ("[registry]\nnormalise = 'off'\nmax_thread = 1", "max_threads"),
    "a value of another type": ("[registry]\nmax_threads = 'many'", "expected int, got str"),
    "a bound that is broken": ("[registry]\nmax_threads = 0", "must be >= 1"),
    "a word that is none": ("[registry]\nnormalize = 'of'", "expected"),
    "an unset variable": (
        "[sources.a]\ntype = 'openapi'\nspec = '${NOT_SET_AT_ALL}'",
        "operad.toml:3: sources.a.spec wants the environment variable NOT_SET_AT_ALL",
    ),
    "a namespace that is none": (
        "[sources.a]\ntype = 'scanner'\nnamespace = 'a b'",
        "namespace: expected one or more",
    ),
    "a folder that is not there": ("[sources.a]\ntype = 'scanner'\npath = 'nowhere'", "nowhere"),
    "a document that is not there": ("[sources.a]\ntype = 'openapi'\nspec = 'gone.json'", "gone.json"),
    "a command that is not there": (
        "[sources.a]\ntype = 'mcp'\ncommand = 'no-such-command-1'",
        "no-such-command-1",
    ),
    "a misspelt plugin": (
        "[plugins]\ndisable = ['scaner']",
        'there is no plugin "scaner" here; did you mean "scanner"? @ operad.toml:1: plugins',
    ),
    "an include that is not there": ("include = ['gone.toml']", "there is no file gone.toml"),
    "a source that is a number": ("[sources]\nl = 3", "operad.toml:2: [sources.l] needs a type"),
    "a dotted source without type": ("[sources]\na.path = 'x'", "operad.toml:2: [sources.a] needs a type"),
    "a source that is a list": ("[[sources.a]]\ntype = 'scanner'", "operad.toml:1: [sources.a] needs a type"),
    "a misspelt plugin to load": (
        "\n[plugins]\nonly = ['opnapi']",
        'did you mean "openapi"? @ operad.toml:2: plugins',
    ),
    "a word for a list": ("[plugins]\nonly = 'openapi'", "expected list, got str @ operad.toml:2: plugins.only"),
    "a key that is there twice": ("[registry]\nmax_threads = 1\nmax_threads = 2", "at line 3"),
    "a text that does not end": ("[sources.a]\ntype = 'scanner", "at line 2"),
    "a table that is there twice": ("[registry]\n[registry]", "at line 2"),
    "an include that is no list": ("\ninclude = 'a.toml'", "operad.toml:2: include: expected a list of files"),
    "an include of itself": ("include = ['operad.toml']", "operad.toml:1: operad.toml includes itself"),
    "a profile that is no table": ("[profiles]\na = 3", "operad.toml:2: [profiles.a] has to be a table, got int"),
    "an unknown table of a profile": (
        "[profiles.a.source.b]\ntype = 'scanner'",
        'operad.toml:1: unknown table [profiles.a.source]; did you mean "sources"?',
    ),
    "a document that is no OpenAPI": (
        "\n[sources.a]\ntype = 'openapi'\nspec = 'operad.toml'",
        "@ operad.toml:2: sources.a",
    ),
    "a server that ends at once": (
        "[sources.a]\ntype = 'mcp'\ncommand = 'false'",
        "it ended with code 1 @ operad.toml:1: sources.a",
    ),
    "a server that is nowhere": ("[sources.a]\ntype = 'mcp'", "got none of them @ operad.toml:1: sources.a"),
    "an API that is not up": (
        "[sources.a]\ntype = 'openapi'\nspec = 'http://127.0.0.1:9/openapi.json'",
        "cannot connect: Connection refused @ operad.toml:1: sources.a",
    ),
    "an auth of no known type": (
        "[sources.a]\ntype = 'openapi'\nspec = 'x'\nauth = { type = 'baerer' }",
        "expected one of 'bearer', 'apiKey', 'basic', 'digest', 'oauth2', 'caller' @ operad.toml:4: sources.a.auth.type",
    ),
    "an auth without a token": (
        "[sources.a]\ntype = 'openapi'\nspec = 'x'\nauth = { type = 'bearer' }",
        "auth: token is missing",
    ),
    "an access key that is none": (
        "[sources.a]\ntype = 'scanner'\npath = 'ops'\naccess = { required_scope = ['a'] }",
        'did you mean "required_scopes"? @ operad.toml:4: sources.a.access',
    ),
    "a remote source without url": (
        "[sources.a]\ntype = 'remote'",
        "missing key 'url' @ operad.toml:1: sources.a.url",
    ),
    "a transport that is a number": (
        "[transport]\nurl = 3",
        "expected str, got int @ operad.toml:2: transport.url",
    ),
    "a transport that nobody has": ("[transport]\nurl = 'carrier://pigeon'", 'there is no transport "carrier"'),
    "a transport option that is none": (
        "[transport]\nurl = 'ws://127.0.0.1:9'\ntokn = 'x'",
        'unknown option "tokn"',
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_configuration_is_named_by_doctor_and_never_a_traceback(run: Run, what: str) -> None:
    text, said = BROKEN[what]
    Path("operad.toml").write_text(text)
    code, out, err = run("doctor", "--timeout", "5", "--json")
    assert code == 1
    errors = [check["message"] for check in json.loads(out) if check["status"] == "error"]
    assert any(said in error for error in errors), errors
    assert "Traceback" not in out + err
    if "transport" not in what:
        code, out, err = run("list")
        assert code == 1
        assert said in err, err
        assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[calls]\ntimeout = 'soon'", "expected float, got str @ operad.toml:2: calls.timeout"),
        (
            "[calls]\nmax_pendin = 3",
            'unknown key "max_pendin"; did you mean "max_pending"? @ operad.toml:2: calls',
        ),
        ("\n[serve]\nhttp = 8000", "expected str, got int @ operad.toml:3: serve.http"),
        ("[serve]\nmcp = 'http'", "@ operad.toml:2: serve.mcp"),
    ],
)
def test_what_only_serving_reads_is_named_by_doctor_and_by_serve(run: Run, text: str, said: str) -> None:
    Path("operad.toml").write_text(f"{text}\n")
    code, out, _ = run("doctor", "--json")
    errors = [check["message"] for check in json.loads(out) if check["status"] == "error"]
    assert code == 1
    assert any(said in error for error in errors), errors
    code, _, err = run("serve", "--http", "127.0.0.1:0")
    assert code == 1
    assert said in err


TOKENS = '[[serve.tokens]]\ntoken = "a-token-12345"\nid = "me"\n'
OPEN = "[serve]\nhttp = '127.0.0.1:0'\n"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (OPEN, "1 of 1 operations require none (no authenticator)"),
        (f"{OPEN}anonymous = true\n{TOKENS}", "1 of 1 operations require none (anonymous = true)"),
        (f"{OPEN}{TOKENS}[serve.mcp]\nanonymous = true\n", "1 of 1 operations require none (anonymous = true)"),
        ("[hub]\nanonymous = true\n", "clients may connect without credentials"),
        (f"{OPEN}{TOKENS}", None),
        (f"{OPEN}[sources.local.access]\n'*' = {{ required_scopes = ['x'] }}\n", None),
        ("", None),
    ],
)
def test_doctor_warns_about_operations_that_require_no_credentials(
    run: Run, text: str, warning: str | None
) -> None:
    Path("ops.py").write_text(
        "from operad import operation\n@operation(namespace='m')\nasync def f() -> int:\n    return 1\n"
    )
    Path("operad.toml").write_text(f'[sources.local]\ntype = "scanner"\npath = "ops.py"\n{text}')
    code, out, _ = run("doctor", "--json")
    found = [check["message"] for check in json.loads(out) if check["what"] in ("credentials", "hub")]
    assert code == 0
    assert found == ([] if warning is None else [warning])


OPS = '[sources.a]\ntype = "scanner"\npath = "ops"\n'
API = '[sources.a]\ntype = "openapi"\nspec = "x.json"\n'
ENCODED = {
    "UTF-16": (OPS.encode("utf-16"), "operad.toml is written as UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (OPS.encode("utf-16-le"), "operad.toml is written as UTF-16; save it as UTF-8"),
    "Latin-1": (
        f"{OPS}# caf\u00e9".encode("latin-1"),
        "operad.toml:4: byte 0xe9 is no UTF-8; save the file as UTF-8",
    ),
    "tables for lists": (b'[sources.a]\ntype = "scanner"\npath = ' + b"[" * 3000, "it is nested too deeply"),
}
"""What no text editor shows: bytes -> what is said."""

WRITTEN = {
    "JSON": ('{"sources": {}}', "operad.toml:1: cannot be read as TOML", "this looks like JSON"),
    "YAML": ("sources:\n  a:\n", "operad.toml:1:", "TOML has key = value, not key: value"),
    "a key of YAML": ('[sources.a]\ntype: "scanner"', "operad.toml:2:", "not key: value"),
    "a text without quotes": ("[sources.a]\ntype = scanner", "operad.toml:2:", "text needs quotes"),
    "a Windows path": (OPS.replace("ops", "C:\\Users\\me"), "operad.toml:3:", "; a backslash begins an escape"),
    "another Windows path": (OPS.replace("ops", "C:\\new\\ops"), "operad.toml:3:", "or with /"),
    "typographic quotes": ("[sources.a]\ntype = \u201cscanner\u201d", "operad.toml:2:", 'write "\u2026"'),
    "a comma at the end": (OPS.replace('"ops"', '"ops",'), "operad.toml:3:", "cannot be read as TOML"),
    "a list without an end": (OPS + "include = [1,", "operad.toml:4:", "Invalid value (at line 4, the end)"),
    "a comment of another language": ("; mine\n" + OPS, "operad.toml:1:", "a comment begins with #"),
    "another comment": ("// mine\n" + OPS, "operad.toml:1:", "a comment begins with #"),
    "True": (OPS + "watch = True", "operad.toml:4:", "TOML has true and false"),
    "null": (OPS + "watch = null", "operad.toml:4:", "leave the key out"),
    "a table in braces over lines": (
        f'{API}auth = {{ type = "bearer",\n token = "{SECRET}" }}',
        "operad.toml:4:",
        "cannot be read as TOML",
    ),
    "a table twice": (OPS + OPS, "operad.toml:4:", "Cannot declare ('sources', 'a') twice"),
    "braces and a table": (
        f'{API}auth = {{ type = "bearer", token = "{SECRET}" }}\n[sources.a.auth]\nprefix = "x"',
        "operad.toml:5:",
        "Cannot declare ('sources', 'a', 'auth') twice",
    ),
    "a value and a table": (
        '[serve]\nmcp = "stdio"\n[serve.mcp]\ntools = "all"',
        "operad.toml:3:",
        "Cannot overwrite a value",
    ),
    "a name with a space": (
        '\n[sources."a b"]\ntype = "scanner"\npath = "ops"',
        'operad.toml:2: sources."a b": the name of a source is the namespace of its operations',
        "rename the table, or write namespace",
    ),
    "a name with a dot": (
        '[sources.a.b]\ntype = "scanner"',
        "operad.toml:1: [sources.a] needs a type",
        "has no dots",
    ),
    "a name that is empty": (
        '[sources.""]\ntype = "scanner"\npath = "ops"',
        'operad.toml:1: sources.""',
        "rename",
    ),
    "keys above all tables": (
        'type = "scanner"\npath = "ops"',
        "operad.toml:1: type stands in no table",
        "below one",
    ),
    "include below a table": (OPS + 'include = ["b.toml"]', "operad.toml:4: sources.a", "it stands at the top"),
    "a list of sources": ('[[sources]]\nname = "a"', "operad.toml:1: [sources] has to be a table", "got list"),
    "servers of an MCP host": ('[mcpServers.a]\ncommand = "x"', "operad.toml:1: unknown table", "sources"),
    "a token beside auth": (f'{API}token = "{SECRET}"', "operad.toml:4: sources.a", "it is a key of auth"),
    "auth as a text": (f'{API}auth = "{SECRET}"', "operad.toml:4: sources.a.auth", "expected a table, got str"),
    "headers as a list": (f'{API}headers = ["A: {SECRET}"]', "operad.toml:4:", "expected a table, got list"),
    "a header that is a number": (API + 'headers = { "X-N" = 3 }', "operad.toml:4:", "expected str, got int"),
    "a key of a common table": (
        API + "[sources.a.limits]\nresponse_byte = 3",
        "operad.toml:5:",
        '"response_bytes"',
    ),
    "a switch as a text": (OPS + 'watch = "yes"', "operad.toml:4: sources.a.watch", "expected bool, got str"),
    "a duration with a unit": (API + 'timeout = "30s"', "operad.toml:4: sources.a.timeout", "expected float"),
    "arguments as one text": (
        '[sources.a]\ntype = "mcp"\ncommand = "npx"\nargs = "-y foo"',
        "operad.toml:4: sources.a.args",
        "expected list, got str",
    ),
    "a command with its arguments": (
        '[sources.a]\ntype = "mcp"\ncommand = "no-such-1 -y foo"',
        "operad.toml:1: sources.a",
        "arguments belong in args",
    ),
    "a command and a URL": (
        '[sources.a]\ntype = "mcp"\ncommand = "x"\nurl = "http://127.0.0.1:9/mcp"',
        "operad.toml:1: sources.a",
        "exactly one of command, url and server",
    ),
    "a URL without a scheme": (
        '[sources.a]\ntype = "mcp"\nurl = "h:9/mcp"',
        "operad.toml:1:",
        "has to start with http",
    ),
    "a shell's default": (
        OPS.replace("ops", "${OPS_DIR:-ops}"),
        "operad.toml:1: sources.a",
        "no such file or folder",
    ),
    "somebody's home": (
        OPS.replace("ops", "~nobody-here/x"),
        "operad.toml:1: sources.a",
        "nobody here has that name",
    ),
    "a home without the folder": (
        OPS.replace("ops", "~/no-such-folder-1"),
        "operad.toml:1: sources.a",
        "no such file",
    ),
    "an empty variable": (
        API + 'auth = { type = "bearer", token = "${EMPTY}" }',
        "operad.toml:4:",
        "token is empty",
    ),
    "a password in a URL": (
        f'[sources.a]\ntype = "openapi"\nspec = "http://me:{SECRET}@127.0.0.1:9/o.json?key={SECRET}"',
        "operad.toml:1: sources.a",
        "http://127.0.0.1:9/o.json cannot be read",
    ),
    "a web page for a document": (
        API.replace("x.json", "page.html"),
        "operad.toml:1:",
        "expected an object in JSON",
    ),
    "a folder for a document": (API.replace("x.json", "ops"), "operad.toml:1: sources.a", "Is a directory"),
    "an mcp.json that is not there": (
        '[sources.a]\ntype = "mcp"\nconfig = "gone.json"',
        "operad.toml:1: sources.a",
        "gone.json cannot be read",
    ),
    "an mcp.json of another shape": (
        '[sources.a]\ntype = "mcp"\nconfig = "x.json"',
        "operad.toml:1: sources.a",
        'expected an object with "mcpServers"',
    ),
    "two sources of one name": ('include = ["b.toml"]\n' + OPS, "[sources.a] is in b.toml", "rename one of them"),
    "an include of the home": (
        'include = ["~/no-such-1.toml"]',
        "operad.toml:1: include",
        "no file ~/no-such-1.toml",
    ),
    "an included file that is broken": (
        'include = ["c.toml"]',
        "c.toml:1: cannot be read as TOML",
        "Expected ']'",
    ),
    "a circle of includes": ('include = ["d.toml"]', "d.toml:1:", "operad.toml -> d.toml -> operad.toml"),
    "a bound in the wrong table": (
        "[registry]\nmax_schema_bytes = 3",
        "operad.toml:2: registry",
        "it is a key of limits",
    ),
    "a scope that is a text": (
        OPS + '[sources.a.access]\nrequired_scopes = "read"',
        "operad.toml:5: sources.a.access.required_scopes",
        "expected list, got str",
    ),
    "an option beside options": (
        f'[sources.a]\ntype = "remote"\nurl = "ws://127.0.0.1:9"\ntoken = "{SECRET}"',
        "operad.toml:4: sources.a",
        'unknown key "token"',
    ),
}
"""What people write: the text -> what is said, where and what to do."""

SERVED = {
    "an open address": (
        '[serve]\nhttp = "0.0.0.0:0"',
        "operad.toml:2: serve.http",
        "callers are not authenticated",
    ),
    "an address without a port": (
        '[serve]\nhttp = "127.0.0.1"',
        "operad.toml:2: serve.http",
        "expected HOST:PORT",
    ),
    "tokens as a table": (
        f'[serve]\n[serve.tokens]\nme = "{SECRET}"',
        "operad.toml:2: serve.tokens",
        "expected list",
    ),
    "a token of nobody": (
        f'[[serve.tokens]]\ntoken = "{SECRET}"',
        "operad.toml:1: serve.tokens",
        "missing key 'id'",
    ),
    "one token of two": (
        "\n".join(f'[[serve.tokens]]\ntoken = "{SECRET}"\nid = "{name}"' for name in "ab"),
        "operad.toml:1: serve.tokens",
        "the same token stands above",
    ),
    "tokens in no file": (
        '[serve]\ntokens_file = "gone.toml"',
        "operad.toml:2: serve.tokens_file",
        "No such file",
    ),
    "an audience that is missing": ('[serve.jwt]\nissuer = "https://i"', "operad.toml:1: serve.jwt", "'audience'"),
    "an authenticator of nowhere": (
        '[serve]\nauthenticate = "nomodule:x"',
        "operad.toml:2: serve.authenticate",
        'if it is a file beside the configuration, write "file.py:name"',
    ),
    "a key of a server": ('[serve.mcp]\ntool = "all"', "operad.toml:1: serve.mcp", 'did you mean "tools"?'),
    "a word of a server": ('[serve.mcp]\ntools = "some"', "operad.toml:2: serve.mcp.tools", "'all', 'search'"),
    "a bound of a server": ("[serve.openapi]\nmax_body = -3", "operad.toml:1: serve.openapi", "must be > 0"),
    "a misspelt server": ("[serve.mpc]\nx = 3", "operad.toml:1: serve.mpc", 'no server "mpc"'),
}
HUBS = {
    "a misspelt key": (f'[hub]\ntoken = "{SECRET}"', "operad.toml:2: hub", 'did you mean "tokens"?'),
    "an address without a host": ('[hub]\nlisten = "8765"', "operad.toml:1: hub", "expected HOST:PORT"),
    "an open address": ('[hub]\nlisten = "0.0.0.0:0"', "operad.toml:1: hub", "listens on loopback only"),
    "a certificate of nowhere": ('[hub]\ncert = "gone.pem"', "operad.toml:1: hub", "gone.pem cannot be used"),
    "a misspelt bound": ("[hub.limits]\ncall = 3", "operad.toml:2: hub.limits", 'did you mean "calls"?'),
    "a bound that is nothing": ("[hub.limits]\ncalls = 0", "operad.toml:1: hub.limits", "expected more than 0"),
}
PROFILES = {
    "an unknown profile": ("", "operad.toml: there is no profile 'p'", "known: none"),
    "a key of a profile": (
        "[profiles.p.registry]\nmax_thread = 3",
        "operad.toml:5: registry",
        'did you mean "max_threads"?',
    ),
    "a source of a profile": (
        '[profiles.p.sources.b]\npath = "x"',
        "operad.toml:4: [sources.b] needs a type",
        "such as",
    ),
    "a variable of a profile": (
        '[profiles.p.sources.a]\npath = "${NOT_SET_AT_ALL}"',
        "operad.toml:5: sources.a.path wants the environment variable NOT_SET_AT_ALL",
        "set it",
    ),
}


@pytest.fixture
def around(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command beside files that configurations name."""
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOT_SET_AT_ALL", raising=False)
    Path("x.json").write_text('{"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {}}')
    Path("page.html").write_text("<html><body>404</body></html>")
    Path("b.toml").write_text(OPS)
    Path("c.toml").write_text("[sources.z\n")
    Path("d.toml").write_text('include = ["operad.toml"]\n')
    return run


def told_by_doctor(run: Run, *arguments: str) -> str:
    code, out, err = run("doctor", "--timeout", "5", "--json", *arguments)
    assert code == 1
    assert "Traceback" not in out + err
    assert SECRET not in out + err
    return "\n".join(check["message"] for check in json.loads(out) if check["status"] == "error")


def told_by(run: Run, *arguments: str) -> str:
    code, out, err = run(*arguments)
    assert code == 1
    assert "Traceback" not in out + err
    assert SECRET not in out + err
    return err


@pytest.mark.parametrize("what", ENCODED)
def test_bytes_that_are_no_text_are_named_by_doctor_and_by_list(around: Run, what: str) -> None:
    data, said = ENCODED[what]
    Path("operad.toml").write_bytes(data)
    assert said in told_by_doctor(around)
    assert said in told_by(around, "list")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_ends_of_lines_and_a_mark_of_the_byte_order_are_no_mistakes(around: Run, ends: str, mark: str) -> None:
    Path("operad.toml").write_bytes((mark + OPS.replace("\n", ends)).encode())
    assert around("list")[0] == 0


@pytest.mark.parametrize("what", WRITTEN)
def test_what_people_write_is_named_with_its_line_and_its_mend(around: Run, what: str) -> None:
    text, *said = WRITTEN[what]
    Path("operad.toml").write_text(text, encoding="utf-8")
    for told in (told_by_doctor(around), told_by(around, "list")):
        assert all(part in told for part in said), told


@pytest.mark.parametrize("what", SERVED)
def test_what_serving_refuses_is_named_by_doctor_too(around: Run, what: str) -> None:
    text, *said = SERVED[what]
    Path("operad.toml").write_text(text)
    http = () if "http =" in text else ("--http", "127.0.0.1:0")
    told, served = told_by_doctor(around), told_by(around, "serve", *http)
    assert all(part in told for part in said), told
    assert said[-1] in served


@pytest.mark.parametrize("what", HUBS)
def test_what_a_hub_refuses_is_named_by_doctor_too(around: Run, what: str) -> None:
    text, where, said = HUBS[what]
    Path("operad.toml").write_text(text)
    told = told_by_doctor(around)
    assert where in told
    assert said in told
    assert said in told_by(around, "hub")


@pytest.mark.parametrize("what", PROFILES)
def test_what_a_profile_says_wrongly_is_named_where_the_profile_says_it(around: Run, what: str) -> None:
    text, *said = PROFILES[what]
    Path("operad.toml").write_text(OPS + text)
    for told in (told_by_doctor(around, "--profile", "p"), told_by(around, "list", "--profile", "p")):
        assert all(part in told for part in said), told


PROJECTS = {
    "a misspelt table": ("[tool.operad.source.a]\ntype = 'scanner'", "pyproject.toml:1: unknown table [source]"),
    "a value for the table": ("[tool]\noperad = 3", "pyproject.toml:2: [tool.operad] has to be a table"),
    "a misspelt key": ("[tool.operad.registry]\nmax_thread = 3", "pyproject.toml:2: registry"),
    "a key of no table": ("[tool.operad]\ntype = 'scanner'", "pyproject.toml:2: type stands in no table"),
    "an include of nothing": (
        "[tool.operad]\ninclude = ['x.toml']",
        "pyproject.toml:2: include: there is no file",
    ),
    "a source without type": ("[tool.operad.sources.a]\npath = 'x'", "pyproject.toml:1: [sources.a] needs a type"),
    "no TOML": ("[tool.operad.sources.a]\ntype = scanner", "pyproject.toml:2: cannot be read as TOML"),
}


@pytest.mark.parametrize("what", PROJECTS)
def test_mistakes_in_a_pyproject_toml_are_named_with_its_lines(around: Run, what: str) -> None:
    text, said = PROJECTS[what]
    Path("operad.toml").unlink()
    Path("pyproject.toml").write_text(text)
    assert said in told_by_doctor(around, "-c", "pyproject.toml")
    assert said in told_by(around, "list", "-c", "pyproject.toml")


def test_a_file_that_may_not_be_read_is_named(around: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "operad.toml cannot be read: Permission denied" in told_by_doctor(around)


def test_a_clock_that_is_years_behind_is_named(around: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.time, "time", lambda: 1_000_000_000.0)
    told = told_by_doctor(around)
    assert "the time is Sun Sep  9" in told or "the time is Sat Sep  8" in told  # as the time zone has it


def test_a_transport_that_does_not_answer_is_named_with_its_place(around: Run) -> None:
    Path("operad.toml").write_text(f'[transport]\nurl = "redis://me:{SECRET}@127.0.0.1:9/0"\n')
    told = told_by_doctor(around)
    assert "no connection to 127.0.0.1:9" in told
    assert "@ operad.toml:1: transport" in told


def test_a_hub_table_without_its_plugin_is_told_with_what_to_install(
    around: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("operad.toml").write_text("[hub]\n")
    monkeypatch.setenv("OPERAD_DISABLE_PLUGINS", "websocket")
    checks = {check["what"]: check for check in json.loads(around("doctor", "--json")[1])}
    assert checks["hub"]["status"] == "warning"
    assert checks["hub"]["fix"] == "pip install operad-websocket"


def test_what_a_source_passes_over_is_shown_by_doctor_as_a_warning(around: Run) -> None:
    Path("ops/broken.py").write_text("def (")
    code, out, err = around("doctor", "--json")
    says = {(check["status"], check["what"]): check["message"] for check in json.loads(out)}
    assert code == 0
    assert says["ok", "source local"].startswith("loaded")
    assert "broken.py: SyntaxError" in says["warning", "source local"]
    assert "broken.py" not in err
