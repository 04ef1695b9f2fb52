import pytest

from harness.store_kinds import LONG, MAKERS


@pytest.fixture(params=MAKERS)
def make_store(request, tmp_path):
    """Makes a fresh store, for the tests that need a place without one."""
    return lambda: MAKERS[request.param](tmp_path)


@pytest.fixture
def store(make_store):
    made = make_store()
    made.set_timeout(LONG)
    return made


@pytest.fixture
def extended(store):
    if not store.has_extended_api():
        pytest.skip("has no queues or clone of its own")
    return store


@pytest.fixture
def listing(store):
    try:
        store.list_keys()
    except NotImplementedError:
        pytest.skip("can neither list nor delete its keys")
    return store
