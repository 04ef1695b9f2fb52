"""The installation: what it and this host offer, as shown by `allhands info`."""

from __future__ import annotations

__all__: list[str] = []
