"""The official JSON-Schema-Test-Suite, as jsonschema's own source distribution carries it.

The suite is not part of this repository. `OPERAD_JSON_SCHEMA_SUITE` names that file or a folder of it:

    pip download --no-binary jsonschema --no-deps --dest DIR jsonschema==4.26.0
    OPERAD_JSON_SCHEMA_SUITE=DIR/jsonschema-4.26.0.tar.gz pytest schema/tests/test_suite.py
"""

import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operad_schema import from_schema

DRAFTS = {
    "draft4": "draft4",
    "draft6": "draft6",
    "draft7": "draft7",
    "draft2019-09": "2019-09",
    "draft2020-12": "2020-12",
}
# A meta-schema may leave out the vocabulary of validation; jsonschema does not look at that either.
NOT_DONE = {"vocabulary.json"}


# Of the optional part, what is promised here as well.
ALSO_DONE = {
    f"{name}.json"
    for name in ("ecmascript-regex", "non-bmp-regex", "bignum", "float-overflow",
                 "id", "anchor", "unknownKeyword", "refOfUnknownKeyword", "no-schema", "dynamicRef")
}  # fmt: skip


def suite_files(draft: str, folder: str = "") -> Iterator[tuple[str, Any]]:
    place = os.environ.get("OPERAD_JSON_SCHEMA_SUITE")
    if not place:
        pytest.skip("OPERAD_JSON_SCHEMA_SUITE does not name jsonschema's source distribution")
    if Path(place).is_dir():
        for file in sorted(Path(place).glob(f"**/tests/{draft}/{folder}*.json")):
            yield file.name, json.loads(file.read_text("utf-8"))
        return
    with tarfile.open(place) as archive:
        for member in archive:
            parts = member.name.split("/")
            place_of = ["json", "tests", draft, *folder.split("/")[:-1]]
            if parts[-1 - len(place_of) : -1] == place_of and parts[-1].endswith(".json"):
                content = archive.extractfile(member)
                assert content is not None
                yield parts[-1], json.load(content)


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_official_suite_finds_no_wrong_accept_and_no_wrong_reject(
    draft: str, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, took = [], Counter[str]()
    for name, groups in suite_files(draft):
        if name in NOT_DONE:
            continue
        for group in groups:
            schema = from_schema(group["schema"], dialect=DRAFTS[draft])  # type: ignore[arg-type]  # one of them
            refused = any("has no target in this document" in warning for warning in schema.warnings)
            for case in group["tests"]:
                answer = schema.is_valid(case["data"])
                assert answer == (not schema.errors(case["data"]))
                if refused:
                    took["refers outside the document"] += 1
                    continue
                took["checked"] += 1
                if answer != case["valid"]:
                    wrong.append((name, group["description"], case["description"]))
    assert sum(took.values()) > 500
    assert wrong == []
    record_property("engines", dict(took))
    with capsys.disabled():
        print(f"\n{draft}: {dict(took)}")


@pytest.mark.parametrize("draft", DRAFTS)
def test_of_the_optional_suite_what_is_promised_holds(draft: str) -> None:
    wrong, count = [], 0
    for name, groups in suite_files(draft, "optional/"):
        if name in ALSO_DONE:
            for group in groups:
                schema = from_schema(group["schema"], dialect=DRAFTS[draft])  # type: ignore[arg-type]  # one of them
                for case in group["tests"]:
                    count += 1
                    if schema.is_valid(case["data"]) != case["valid"]:
                        wrong.append((name, group["description"], case["description"]))
    assert wrong == []
    assert count > 20
