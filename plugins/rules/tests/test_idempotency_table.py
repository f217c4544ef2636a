"""The table ``[idempotency]`` turns idempotency keys on; without it the plugin changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from operad import ConfigError, MemoryResults, OperationRegistry, OperationSpec, Plugins
from operad_rules import plugin

SHARED = MemoryResults()


class Incomplete:
    """A store without ``drop``."""

    claim = put = SHARED.claim


INCOMPLETE = Incomplete()


def registry_of(
    tmp_path: Path, text: str | None, *, has_plugin: bool = True
) -> tuple[OperationRegistry, list[Any]]:
    plugins, ran = Plugins(), []
    if has_plugin:
        plugins.register(plugin, "rules", distribution="operad-rules")
    if text is None:
        registry = OperationRegistry(plugins)
    else:
        (tmp_path / "operad.toml").write_text(text)
        registry = OperationRegistry.from_config(tmp_path / "operad.toml", plugins)

    async def order(input: Any, context: Any) -> int:
        ran.append(context.idempotency_key)
        return len(ran)

    for name in ("order", "other"):
        registry.register(OperationSpec(namespace="shop", name=name), order)
    return registry, ran


async def ordered(registry: OperationRegistry, times: int, name: str = "order") -> list[Any]:
    key = {"idempotency_key": "k"}
    return [(await registry.execute(f"shop.{name}", {}, **key)).data for _ in range(times)]  # type: ignore[arg-type]  # one keyword


@pytest.mark.parametrize("text", [None, "", "[registry]\nmax_threads = 3\n"])
async def test_without_the_table_a_key_is_passed_to_the_handler(tmp_path, text):
    registry, ran = registry_of(tmp_path, text)
    assert await ordered(registry, 2) == [1, 2]
    assert ran == ["k", "k"]


async def test_an_empty_table_turns_keys_on(tmp_path):
    registry, ran = registry_of(tmp_path, "[idempotency]\n")
    assert await ordered(registry, 3) == [1, 1, 1]
    assert ran == ["k"]


async def test_keys_apply_to_the_operations_that_match(tmp_path):
    registry, _ = registry_of(tmp_path, '[idempotency]\nmatch = ["*.order"]\n')
    assert await ordered(registry, 2) == [1, 1]
    assert await ordered(registry, 2, "other") == [2, 3]


async def test_two_registries_share_the_store_that_the_table_names(tmp_path):
    text = f'[idempotency]\nstore = "{__name__}:SHARED"\n'
    assert await ordered(registry_of(tmp_path, text)[0], 1) == [1]
    registry, ran = registry_of(tmp_path, text)
    assert (await ordered(registry, 1), ran) == ([1], [])


async def test_a_store_may_be_made_by_a_function_or_class(tmp_path):
    registry, _ = registry_of(tmp_path, '[idempotency]\nstore = "operad:MemoryResults"\n')
    assert await ordered(registry, 2) == [1, 1]


async def test_an_idempotent_repetition_is_answered_outside_other_interceptors(tmp_path):
    registry, _ = registry_of(tmp_path, "[idempotency]\n")
    seen = []

    async def tap(call: Any, proceed: Any) -> Any:
        seen.append(call.spec.id)
        return await proceed(call)

    registry.use(tap)
    await ordered(registry, 3)
    assert seen == ["shop.order"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("second = 5", 'unknown key "second".*did you mean "seconds"'),
        ("seconds = 0", "seconds"),
        ("capacity = 0", "capacity"),
        ('store = "nowhere_at_all:x"', "idempotency.store: .*nowhere_at_all"),
        ('store = "{here}:INCOMPLETE"', "without drop"),
    ],
)
def test_a_table_that_cannot_be_used_makes_no_registry(tmp_path, table, message):
    with pytest.raises(ConfigError, match=message):
        registry_of(tmp_path, f"[idempotency]\n{table.replace('{here}', __name__)}\n")


def test_without_the_plugin_the_table_is_an_error_that_says_what_to_install(tmp_path):
    message = "no loaded plugin reads [idempotency]; install one or enable it: pip install operad-rules"
    with pytest.raises(ConfigError, match=f"{re.escape(message)}.*operad.toml:1"):
        registry_of(tmp_path, "[idempotency]\n", has_plugin=False)


def test_the_tables_are_contributed_for_checks_of_a_configuration():
    found = [(table.name, table.config_type.__name__) for table in plugin.operad_tables()]
    assert found == [("idempotency", "IdempotencyOptions"), ("rules", "Rule")]
