"""What an unpickler may make that trusts nobody: arrays and what is in them.

A pickle names what it calls. Here stand the names that are harmless with whatever
arguments, of the array libraries; each library has a module with the functions of
`Loading`. Some names stand for functions of ours, where the library's own would take
the sender's word for what memory holds.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Protocol, cast

__all__ = ["allowed_by_user", "loadable", "set_state"]


class Loading(Protocol):
    """What a library's module must have."""

    def loadable(self, name: str) -> Any:
        """What `name`, a full path, stands for; KeyError where it is not harmless."""

    def set_state(self, made: Any, state: Any) -> bool:
        """Give `made` its state; False where that is not of this library, or unsafe.

        Raises:
            ValueError: `state` is not what this library makes of such an object.
        """


_MODULES = {
    "numpy": "allhands.arrays._numpy_loading",
    "torch": "allhands.arrays._torch_loading",
    "allhands": "allhands.arrays._torch_loading",  # its storages, see `reducers`
}


def loadable(name: str) -> Any:
    """What `name` stands for in a pickle.

    Raises:
        KeyError: nothing that may be loaded.
    """
    module = _MODULES[name.partition(".")[0]]
    try:
        library = cast(Loading, importlib.import_module(module))
    except ImportError as error:
        raise KeyError(name) from error
    return library.loadable(name)


def set_state(made: Any, state: Any) -> bool:
    """Give `made` its state; False where no library allows that."""
    return any(
        cast(Loading, sys.modules[module]).set_state(made, state)
        for module in dict.fromkeys(_MODULES.values())
        if module in sys.modules
    )


def allowed_by_user() -> dict[str, Any]:
    """What the program gave to `torch.serialization.add_safe_globals`, by full path."""
    if sys.modules.get("torch.serialization") is None:
        return {}
    library = importlib.import_module("allhands.arrays._torch_loading")
    return cast("dict[str, Any]", library.allowed_by_user())
