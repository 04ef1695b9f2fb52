import pytest


@pytest.fixture
def path(tmp_path):
    """Where a FileStore's file may be; there is none yet."""
    return str(tmp_path / "store")
