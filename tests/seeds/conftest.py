"""The array library that an example runs on."""

import pytest


@pytest.fixture(params=["numpy", "torch"])
def xp(request):
    """NumPy or torch, by the names that both have: arange, ones, asarray, ..."""
    return pytest.importorskip(request.param)
