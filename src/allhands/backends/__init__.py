"""The engines behind the groups, loaded by name; `registry` has the table of them.

An engine that another library carries has a folder.
"""

from __future__ import annotations

__all__: list[str] = []
