"""The collector waits while much is made that stays, and is afterwards as it was."""

from __future__ import annotations

import gc

import pytest

from operad_openapi._collecting import building


def test_nothing_is_collected_meanwhile_and_what_was_made_is_not_looked_at_soon() -> None:
    passes: list[int] = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: passes.append(info["generation"]) if phase == "start" else None)
    try:
        with building():
            made = [[number] for number in range(10_000)]
            assert not passes
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert not young & set(map(id, made))


def test_what_an_application_froze_stays_so_and_what_was_made_is_old_all_the_same() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with building():
            made = [[number] for number in range(1_000)]
        assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01)  # some of it may end meanwhile
        young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
        assert not young & set(map(id, made))
    finally:
        gc.unfreeze()


def test_who_found_it_stopped_leaves_it_stopped_also_after_an_error() -> None:
    def nested() -> None:
        with building():
            with building():
                pass
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        nested()
    assert gc.isenabled()
