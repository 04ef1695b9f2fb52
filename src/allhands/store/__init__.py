"""Key-value stores: what ranks find each other with. One file per store."""

from allhands.store.base import Store

__all__ = ["Store"]
