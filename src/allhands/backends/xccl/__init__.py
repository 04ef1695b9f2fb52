"""Backend `xccl`: Intel's oneCCL moves arrays in CPU memory."""

from __future__ import annotations

__all__: list[str] = []
