"""docs/auth.md: its configuration is one, and its tables are complete."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

from operad_auth import IntrospectionOptions, JWTOptions, OAuthOptions, TokenRecord, authenticator_from

PAGE = (Path(__file__).parents[2] / "docs" / "auth.md").read_text()
TABLES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_configuration_makes_an_authenticator(tmp_path: Path) -> None:
    (tmp_path / "who.py").write_text("def caller(credentials): return None\n")
    text, _ = TABLES
    serve = tomllib.loads(text)["serve"]
    made = authenticator_from(
        tokens=[TokenRecord(**record) for record in serve["tokens"]],
        jwt=JWTOptions(**serve["jwt"]),
        authenticate=serve["authenticate"],
        base_dir=tmp_path,
    )
    assert made is not None


def test_the_table_of_introspection_makes_an_authenticator() -> None:
    _, text = TABLES
    options = IntrospectionOptions(**tomllib.loads(text)["serve"]["introspection"])
    assert authenticator_from(introspection=options) is not None


def test_the_options_of_a_client_are_those_of_the_page() -> None:
    table = PAGE[PAGE.index("| option | meaning |") :]
    named = set(re.findall(r"`(\w+)`", table))
    options = set(inspect.signature(OAuthOptions).parameters) - {"client_id", "client_secret"}
    assert options - named == set()
