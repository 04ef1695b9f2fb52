"""Backend `gloo`: torch's Gloo moves arrays."""

from __future__ import annotations

__all__: list[str] = []
