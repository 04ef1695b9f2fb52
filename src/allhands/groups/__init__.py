"""Process groups: their class, their making, and queries about them."""

from __future__ import annotations

__all__: list[str] = []
