"""What tests of backends share."""

import pytest

from allhands.backends.registry import Backend


@pytest.fixture
def registered():
    """`Backend.register_backend`, whose doings are taken back."""
    names = {*vars(Backend)}
    kept = [
        (table, table.copy())
        for table in (
            Backend.default_device_backend_map,
            Backend.backend_capability,
            Backend.backend_type_map,
            Backend._plugins,
        )
    ]
    known = [*Backend.backend_list]
    yield Backend.register_backend
    Backend.backend_list[:] = known
    for table, content in kept:
        table.clear()
        table.update(content)
    for name in {*vars(Backend)} - names:
        delattr(Backend, name)
