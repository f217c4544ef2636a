"""Fixtures of hubs and spokes."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from operad_calls.federation import remote


@pytest.fixture
def authority() -> Any:
    """An authority that issues certificates."""
    return pytest.importorskip("trustme", reason="trustme makes the certificates").CA()


@pytest.fixture
def server_context(authority: Any) -> ssl.SSLContext:
    """The TLS of a server on 127.0.0.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers may take long to describe an operation."""
    monkeypatch.setattr(remote, "_DESCRIBING", 60.0)
