"""The quickstart of adapters, from the skeleton to a plugin that an application finds, in a fresh environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.replaying import replay


@pytest.mark.bash
async def test_the_quickstart_of_an_adapter_makes_a_plugin(
    tmp_path: Path, make_environment: Callable[[list[Any]], Any]
) -> None:
    environment = make_environment(["operad-cli[new-plugin]"])

    def install(command: str) -> None:
        path = re.search(r"\./([\w-]+)", command)
        assert path is not None, command
        environment.install(f"{tmp_path / path[1]}[test]")

    commands = await replay(
        "quickstart-adapter.md", tmp_path, programs=environment.folder / "bin", install=install
    )
    assert commands[-1] == "operad doctor"
