"""docs/errors.md has every code, with the HTTP status and the promise that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from operad import CallError, ErrorCode, errors
from operad_serve.problems import problem_of

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")


def test_every_code_is_in_the_table_with_its_http_status() -> None:
    table = PAGE.partition("<!-- codes:")[2].partition("<!-- end of codes -->")[0]
    named = re.findall(r"^\| `([A-Z_]+)` \|[^|]*\| (\d+) \| (yes)? *\|", table, re.MULTILINE)
    assert {code for code, _, _ in named} == {str(code) for code in ErrorCode}
    for code, status, did_not_run in named:
        error = CallError(code, "x")
        assert problem_of(error, (), has_identity=True).status == int(status), code
        assert error.says_nothing_ran is bool(did_not_run), code


def test_every_class_of_errors_is_on_the_page() -> None:
    children = [cls.__name__ for cls in errors.OperadError.__subclasses__() if cls.__module__ == errors.__name__]
    assert [name for name in children if f"`{name}`" not in PAGE] == []
