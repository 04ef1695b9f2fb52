"""The operations of a group: each function finds the group and delegates."""

from __future__ import annotations

__all__: list[str] = []
