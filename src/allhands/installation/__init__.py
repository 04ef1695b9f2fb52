"""The installation: what it and this host offer, as `allhands info` tells."""

from __future__ import annotations

__all__: list[str] = []
