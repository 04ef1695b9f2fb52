"""Backend `nccl`: NVIDIA's NCCL moves arrays between GPUs."""

from __future__ import annotations

__all__: list[str] = []
