"""Process groups: what they are, how they are made, questions about them."""

from __future__ import annotations

__all__: list[str] = []
