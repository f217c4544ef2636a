"""Search over real documents: what people type finds what they mean."""

from __future__ import annotations

import json
import statistics

import pytest

from operad import OperationRegistry, load_plugins
from tests.kit import DOCUMENTS, needed_document

CASES = DOCUMENTS / "search_cases.jsonl"


@pytest.mark.node
async def test_plain_words_find_the_operation_that_is_meant() -> None:
    documents = {name: needed_document(name) for name in ("github", "stripe", "discord")}
    if not CASES.is_file():
        pytest.skip("OPERAD_DOCUMENTS names no folder of cases")
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    async with OperationRegistry(load_plugins()) as registry:
        for name, path in documents.items():
            await registry.load("openapi", namespace=name, spec=str(path), base_url="http://127.0.0.1:9")
        ranks = []
        for case in cases:
            found = [spec.id for spec in registry.search(case["query"], 10)]
            ranks.append(next((at for at, one in enumerate(found, 1) if one in case["any_of"]), None))
    assert statistics.mean(rank is not None and rank <= 5 for rank in ranks) >= 0.85
    assert statistics.mean(1 / rank if rank else 0 for rank in ranks) >= 0.75
