"""Distributed communication for Python arrays, with torch.distributed's API."""

from allhands.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
    RankFailedError,
)
from allhands.store import FileStore, HashStore, PrefixStore, Store

__all__ = [
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "HashStore",
    "PrefixStore",
    "QueueEmptyError",
    "RankFailedError",
    "Store",
]
