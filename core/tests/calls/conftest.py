"""What the tests of calls are given."""

from types import SimpleNamespace

import pytest

from operad.calls import lateness, served


@pytest.fixture
def clock(monkeypatch):
    """Both clocks, moved by hand."""
    made = SimpleNamespace(now=1_000.0)
    by_hand = SimpleNamespace(monotonic=lambda: made.now, time=lambda: made.now)
    monkeypatch.setattr(served, "time", by_hand)
    monkeypatch.setattr(lateness, "time", by_hand)
    return made
