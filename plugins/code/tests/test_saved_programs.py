"""Saved programs: files of a folder as operations."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, Identity, OperationContext, OperationRegistry, operation
from plugins.calls.tests.links import until
from plugins.code.tests.programs import registry_of

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
TOTAL = '''
from typing import Literal

async def main(order: str, count: int = 2, kind: "Literal['a', 'b'] | None" = None) -> dict[str, int]:
    """Add up prices."""
    prices = await shop.prices(order=order)
    return {"total": sum(prices[:count])}
'''


PURCHASE = "async def main() -> str:\n    return await shop.buy(book=1)\n"


@operation(namespace="shop", type="query")
async def prices(order: str) -> list[int]:
    return [1, 2, 3]


@operation(namespace="shop", access_control={"required_scopes": ["shop"]})
async def buy(book: int) -> str:
    return f"bought {book}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "total.py").write_text(TOTAL)
    return tmp_path


async def loaded(folder: Path, **options: Any) -> OperationRegistry:
    return await registry_of(prices, buy, namespace="recipes", path=folder, **options)


async def test_a_file_is_an_operation(folder: Path) -> None:
    async with await loaded(folder) as registry:
        spec = registry.get_spec("recipes.total")
        assert spec is not None
        assert spec.description == "Add up prices."
        assert spec.input_schema.raw == {
            "type": "object",
            "properties": {
                "order": {"type": "string"},
                "count": {"type": "integer", "default": 2},
                "kind": {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": None},
            },
            "required": ["order"],
            "additionalProperties": False,
        }
        assert spec.output_schema.raw == {"type": "object", "additionalProperties": {"type": "integer"}}
        assert (await registry.execute("recipes.total", {"order": "x", "count": 3})).data == {"total": 6}


async def test_a_program_of_queries_is_a_query(folder: Path) -> None:
    (folder / "purchase.py").write_text(PURCHASE)
    async with await loaded(folder) as registry:
        kinds = {spec.id: str(spec.type) for spec in registry.specs() if spec.namespace == "recipes"}
    assert kinds == {"recipes.total": "query", "recipes.purchase": "mutation"}


async def test_a_saved_program_has_the_rights_of_its_caller(folder: Path) -> None:
    (folder / "purchase.py").write_text(PURCHASE)
    async with await loaded(folder) as registry:
        ann = OperationContext(identity=Identity("ann", scopes=["shop"]))
        assert (await registry.execute("recipes.purchase", {}, ann)).data == "bought 1"
        with pytest.raises(CallError):
            await registry.execute("recipes.purchase", {}, OperationContext(identity=Identity("bob")))


DEEP = "async def main() -> int:\n    return " + "(" * 500 + ")" * 500
UNUSABLE = [
    *TABLES["unusable programs"],
    ("#" * 70_000, "expected at most max_code = 65536 bytes, got 70000"),
    ("-" * 60_000 + "1", "odd.py: cannot be read: "),
    (DEEP, "odd.py"),
]


@pytest.mark.parametrize(("text", "problem"), UNUSABLE)
async def test_a_program_that_cannot_be_used_is_reported_and_the_others_load(
    folder: Path, text: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "odd.py").write_text(text)
    async with await loaded(folder) as registry:
        assert [spec.id for spec in registry.specs() if spec.namespace == "recipes"] == ["recipes.total"]
    (record,) = [record for record in caplog.records if record.name == "operad.code"]
    assert "odd.py" in record.getMessage()
    assert problem in record.getMessage()
    assert not record.getMessage().endswith(": "), "a MemoryError has no text of its own"


async def test_the_report_of_a_wrong_call_has_the_signature_that_was_meant(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "odd.py").write_text("async def main() -> list[int]:\n    return await shop.prices(ordr='x')\n")
    async with await loaded(folder):
        assert "(signature: shop.prices(*, order: str) -> list[int])" in caplog.text


async def test_files_are_not_run_when_they_are_loaded(folder: Path) -> None:
    (folder / "evil.py").write_text("import os\nos.abort()\nasync def main() -> int:\n    return 1\n")
    async with await loaded(folder, check=False) as registry:
        assert "recipes.evil" in registry


async def test_changed_new_and_removed_files_are_followed(folder: Path) -> None:
    async with await loaded(folder) as registry:
        (folder / "one.py").write_text("async def main() -> int:\n    return 1\n")
        await until(lambda: "recipes.one" in registry)
        (folder / "one.py").write_text("async def main() -> int:\n    return 22\n")
        (folder / "total.py").unlink()
        await until(lambda: "recipes.total" not in registry)
        assert (await registry.execute("recipes.one")).data == 22


async def test_programs_follow_the_operations_that_they_call(folder: Path) -> None:
    async with await loaded(folder) as registry:
        registry.unregister("shop.prices")
        await until(lambda: "recipes.total" not in registry)
        registry.register(prices)
        await until(lambda: "recipes.total" in registry)


async def test_programs_of_programs_end_at_a_depth(folder: Path) -> None:
    (folder / "again.py").write_text("async def main() -> int:\n    return await recipes.again()\n")
    async with await loaded(folder, check=False) as registry:
        with pytest.raises(CallError, match="max_depth = 3"):
            await registry.execute("recipes.again")


async def test_a_configuration_loads_programs_beside_their_sources(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "shop.py").write_text(
        "import time\nfrom operad import operation\ntime.sleep(0.3)\n\n"
        '@operation(namespace="shop", type="query")\nasync def prices(order: str) -> list[int]:\n    return [4]\n'
    )
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "total.py").write_text(TOTAL)
    (recipes / "odd.py").write_text("async def main() -> list[int]:\n    return await shop.prices()\n")
    (tmp_path / "operad.toml").write_text(
        '[sources.recipes]\ntype = "code"\npath = "recipes"\n[sources.local]\ntype = "scanner"\npath = "operations"\n'
    )
    with caplog.at_level(logging.WARNING, "operad.code"):
        async with OperationRegistry.from_config(tmp_path / "operad.toml") as registry:
            assert (await registry.execute("recipes.total", {"order": "x"})).data == {"total": 4}
            await until(lambda: "recipes.odd" not in registry)
    messages = [record.getMessage() for record in caplog.records if record.name == "operad.code"]
    assert len(messages) == 1
    assert "odd.py: line 2" in messages[0]


async def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="expected a folder of programs"):
        await loaded(tmp_path / "missing")
