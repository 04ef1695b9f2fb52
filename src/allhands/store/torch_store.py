"""TorchStore: a store of torch as a store of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

import torch.distributed

from allhands._C import addresses_towards
from allhands.errors import DistNetworkError, DistStoreError
from allhands.store.base import Store
from allhands.store.route import Route

__all__ = ["TorchStore"]

_LOOK_UP_LIMIT_S = 5.0

_F = TypeVar("_F", bound=Callable[..., Any])


def _in_our_words(method: _F) -> _F:
    """Raise this package's exceptions instead of torch's."""

    @wraps(method)
    def call(*args: Any) -> Any:
        try:
            return method(*args)
        except torch.distributed.DistNetworkError as error:
            raise DistNetworkError(str(error)) from error
        except torch.distributed.DistStoreError as error:
            raise DistStoreError(str(error)) from error

    return call  # type: ignore[return-value]


@_in_our_words
def _client(host: str, port: int, limit: timedelta) -> Any:
    return torch.distributed.TCPStore(
        host, port, is_master=False, timeout=limit, wait_for_workers=False
    )


class TorchStore(Store):
    """The store of a torch program, as the native engine's rendezvous needs it.

    A wait looks again and again. torch's own waits cannot be interrupted, and write a
    warning to stderr when their limit passes.

    Args:
        store: any `torch.distributed.Store`; this object is as thread-safe as `store`.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    @staticmethod
    def connect(host: str, port: int, limit: timedelta) -> TorchStore:
        """Return a client of torch's TCPStore that listens at `host` and `port`.

        Raises:
            DistNetworkError: no store was found within `limit`.
        """
        return TorchStore(_client(host, port, limit))

    @property
    def is_served_here(self) -> bool:
        """Whether this process serves the store; torch tells it only as a text."""
        return "server=TCPServer(" in repr(self._base())

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout  # type: ignore[no-any-return]

    def set_timeout(self, timeout: timedelta) -> None:
        self._store.set_timeout(timeout)

    @_in_our_words
    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(key, value)

    @_in_our_words
    def get(self, key: str) -> bytes:
        if not self._store.check([key]):
            self.wait([key])
        return bytes(self._store.get(key))

    @_in_our_words
    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    @_in_our_words
    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._store.check(list(keys)))

    @_in_our_words
    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        return bytes(self._store.compare_set(key, expected_value, desired_value))

    @_in_our_words
    def delete_key(self, key: str) -> bool:
        return bool(self._store.delete_key(key))

    def _base(self) -> Any:
        """Return torch's store below all prefixes."""
        store = self._store
        while isinstance(store, torch.distributed.PrefixStore):
            store = store.underlying_store
        return store

    def _route(self) -> Route | None:
        store = self._base()
        if isinstance(
            store, (torch.distributed.FileStore, torch.distributed.HashStore)
        ):
            return Route()
        if not isinstance(store, torch.distributed.TCPStore):
            return None
        own = addresses_towards(store.host, _LOOK_UP_LIMIT_S)
        return Route(store.host, own[0] if own else "")
