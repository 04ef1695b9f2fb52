"""The engines behind the groups, one file each, loaded by name (see `registry`)."""

from __future__ import annotations

__all__: list[str] = []
