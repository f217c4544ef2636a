"""What the tests of calls are given."""

from types import SimpleNamespace

import pytest

from operad_calls import reports
from operad_calls.serving import active, served


@pytest.fixture
def clock(monkeypatch):
    """The clocks of what is served, moved by hand."""
    made = SimpleNamespace(now=1_000.0)
    by_hand = SimpleNamespace(monotonic=lambda: made.now, time=lambda: made.now)
    for module in (active, served, reports):
        monkeypatch.setattr(module, "time", by_hand)
    return made
