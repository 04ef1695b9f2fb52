"""HookMethods: methods with which users register hooks on a group, as in torch.

`ProcessGroup` derives from it. `allhands.backends.hooks` describes the arguments of
hooks.
"""

from __future__ import annotations

from operator import index
from typing import Any

from allhands.backends.communicator import Communicator
from allhands.backends.hooks import (
    AbortHook,
    Around,
    HookedCommunicator,
    Hooks,
    PostHook,
    PreHook,
)

__all__ = ["HookMethods"]


class HookMethods:
    """See the module. Register and unregister only while no operation is under way."""

    communicator: Communicator
    """Carries out the operations of this group."""

    def __init__(self) -> None:
        self._hooks = Hooks()

    def register_pre_hook(self, hook_id: int, hook: PreHook) -> None:
        """Call `hook` with a `PreHookArgs` before each operation of this rank begins.

        Hooks see everything that passes the group's communicator, from any thread:
        collectives, messages, and the parts of object collectives. A group without
        hooks runs no additional code. The caller chooses `hook_id`.

        Raises:
            ValueError: there is already a hook with this id.
        """
        self._register(self._hooks.before, "pre", hook_id, hook)

    def register_post_hook(self, hook_id: int, hook: PostHook) -> None:
        """Call `hook` with a `PostHookArgs` after each operation has ended or started.

        Raises:
            ValueError: there is already a hook with this id.
        """
        self._register(self._hooks.after, "post", hook_id, hook)

    def register_abort_hook(self, hook_id: int, hook: AbortHook) -> None:
        """Call `hook()` when an operation breaks the group, or before `abort()` does.

        It may run in a thread of the backend, and more than once.

        Raises:
            ValueError: there is already a hook with this id.
        """
        self._register(self._hooks.on_abort, "abort", hook_id, hook)

    def unregister_pre_hook(self, hook_id: int) -> None:
        """Undo `register_pre_hook`; do nothing for an unknown id."""
        self._unregister(self._hooks.before, hook_id)

    def unregister_post_hook(self, hook_id: int) -> None:
        """Undo `register_post_hook`; do nothing for an unknown id."""
        self._unregister(self._hooks.after, hook_id)

    def unregister_abort_hook(self, hook_id: int) -> None:
        """Undo `register_abort_hook`; do nothing for an unknown id."""
        self._unregister(self._hooks.on_abort, hook_id)

    def set_first_hook(self, hook: PreHook | None) -> None:
        """Call `hook` before all others; None removes it. For the package itself."""
        self._hooks.first = hook
        self._come_or_go()

    def set_around(self, around: Around | None) -> None:
        """Have `around` carry out each operation; None removes it.

        For the package itself.
        """
        self._hooks.around = around
        self._come_or_go()

    @property
    def supports_abort_hooks(self) -> bool:
        """Whether `register_abort_hook` works: True."""
        return True

    @property
    def supports_completion_hooks(self) -> bool:
        """Whether there are hooks for the end of asynchronous operations: False."""
        return False

    def _register(
        self, hooks: dict[int, Any], kind: str, hook_id: int, hook: Any
    ) -> None:
        if index(hook_id) in hooks:
            raise ValueError(f"the group has a {kind} hook {hook_id}")
        hooks[index(hook_id)] = hook
        self._come_or_go()

    def _unregister(self, hooks: dict[int, Any], hook_id: int) -> None:
        hooks.pop(index(hook_id), None)
        self._come_or_go()

    def _come_or_go(self) -> None:
        """Put the hooks in front of the communicator while there are any."""
        now = self.communicator
        if not self._hooks and isinstance(now, HookedCommunicator):
            self.communicator = now.communicator
        elif self._hooks and not isinstance(now, HookedCommunicator):
            self.communicator = HookedCommunicator(now, self._hooks)
