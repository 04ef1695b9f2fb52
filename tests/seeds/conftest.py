"""What the examples run on: an array library, and where they say gloo our engine."""

import pytest


@pytest.fixture(params=["numpy", "torch"])
def xp(request):
    """NumPy or torch, by the names that both have: arange, ones, asarray, ..."""
    return pytest.importorskip(request.param)


@pytest.fixture(autouse=True)
def replaced_gloo(monkeypatch):
    """The switch for programs that say gloo and shall get the native engine."""
    monkeypatch.setenv("ALLHANDS_REPLACE_GLOO", "1")
