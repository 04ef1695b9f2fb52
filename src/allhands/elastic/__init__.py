"""Running the ranks of a job; `allhands.run` is its command line."""

from __future__ import annotations

__all__: list[str] = []
