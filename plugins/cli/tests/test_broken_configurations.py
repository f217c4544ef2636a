"""Configurations as people break them: each named by `doctor` and by the command that meets it.

With the file, the line, what is wrong and what to do; never with a traceback, never with a secret.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operad_cli.running import checks
from plugins.cli.tests.conftest import Run, configure

TABLES = json.loads(Path(__file__).with_name("broken_configurations.json").read_text("utf-8"))

OPERATIONS = """
from operad import operation

@operation(namespace="text", type="query")
async def head(text: str) -> str:
    return text
"""
SECRET = "t0p-s3cret-value"

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


def test_doctor_warns_about_rules_that_match_no_operation(run: Run) -> None:
    pytest.importorskip("operad_rules")
    rules = (("text.*", "deny = true"), ("txt.*", "deny = true"), ("gone.*", "hide = true"))
    configure("".join(f'[[rules]]\nmatch = "{match}"\n{key}\n' for match, key in rules))
    code, out, _ = run("doctor", "--json")
    found = [check["message"] for check in json.loads(out) if check["what"] == "rules"]
    assert (code, found) == (0, ["[[rules]] 2 matches no operation"])


OPS = '[sources.a]\ntype = "scanner"\npath = "ops"\n'
ENCODED = {
    "UTF-16": (OPS.encode("utf-16"), "operad.toml is written as UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (OPS.encode("utf-16-le"), "operad.toml is written as UTF-16; save it as UTF-8"),
    "Latin-1": (f"{OPS}# caf\u00e9".encode("latin-1"), "operad.toml:4: byte 0xe9 is not UTF-8; save the file as"),
    "tables for lists": (b'[sources.a]\ntype = "scanner"\npath = ' + b"[" * 3000, "it is nested too deeply"),
}
"""What no text editor shows: bytes -> what is said."""


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


@pytest.mark.parametrize(("data", "said"), ENCODED.values(), ids=ENCODED)
def test_bytes_that_are_no_text_are_named_by_doctor_and_by_list(around: Run, data: bytes, said: str) -> None:
    Path("operad.toml").write_bytes(data)
    assert said in told_by_doctor(around)
    assert said in told_by(around, "list")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_ends_of_lines_and_a_mark_of_the_byte_order_are_no_mistakes(around: Run, ends: str, mark: str) -> None:
    Path("operad.toml").write_bytes((mark + OPS.replace("\n", ends)).encode())
    assert around("list")[0] == 0


@pytest.mark.parametrize(("group", "what"), [(group, what) for group in TABLES for what in TABLES[group]])
def test_what_is_wrong_is_named_by_doctor_and_by_the_command_that_meets_it(
    around: Run, group: str, what: str
) -> None:
    """With its line and its mend. The tables have the text of a file, and what is said."""
    text, *said = TABLES[group][what]
    arguments: tuple[str, ...] = ()
    if group == "projects":
        Path("operad.toml").rename("pyproject.toml")
        arguments = ("-c", "pyproject.toml")
    elif group == "profiles":
        arguments = ("--profile", "p")
    Path("pyproject.toml" if group == "projects" else "operad.toml").write_text(text, "utf-8")
    told = told_by_doctor(around, *arguments)
    assert all(part in told for part in said), told
    if group == "served":
        assert said[-1] in told_by(around, "serve", *(() if "http =" in text else ("--http", "127.0.0.1:0")))
    elif group == "hubs":
        assert said[-1] in told_by(around, "hub")
    elif group != "transports":
        told = told_by(around, "list", *arguments)
        assert all(part in told for part in said), told


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


def test_all_mistakes_in_the_table_of_a_source_are_named_at_once(run: Run) -> None:
    Path("operad.toml").write_text('[sources.a]\ntype = "scanner"\npath = "ops"\nwacth = true\nstrict = "yes"\n')
    code, out, _ = run("doctor", "--json")
    (error,) = [check["message"] for check in json.loads(out) if check["status"] == "error"]
    assert code == 1
    assert 'unknown key "wacth"; did you mean "watch"? @ operad.toml:4: sources.a' in error
    assert "expected a boolean, got a string; write true or false, without quotes @ operad.toml:5" in error


def test_a_path_that_is_an_address_without_its_scheme_is_recognised(run: Run) -> None:
    Path("operad.toml").write_text('[sources.a]\ntype = "openapi"\nspec = "www.example.com/x.json"\n')
    code, _, err = run("list")
    assert code == 1
    assert 'did you mean "https://www.example.com/x.json"?' in err


def test_an_empty_list_names_what_the_kind_of_its_sources_needs(run: Run) -> None:
    Path("ops", "served.py").write_text("")
    assert "A scanned folder needs functions with @operation." in run("list")[1]
