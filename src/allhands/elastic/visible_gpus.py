"""Which GPU a rank sees where each rank of a node is to see one, as its first."""

from __future__ import annotations

__all__ = ["VISIBLE_GPUS", "gpu_of"]

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def gpu_of(local_rank: int, visible: str | None) -> str:
    """Return the GPU of a rank.

    Args:
        local_rank: the rank's number on its node.
        visible: the launcher's CUDA_VISIBLE_DEVICES. None: all GPUs, by number.

    Raises:
        ValueError: too few are visible.
    """
    if visible is None:
        return str(local_rank)
    gpus = [gpu for gpu in visible.split(",") if gpu.strip()]
    if local_rank >= len(gpus):
        raise ValueError(
            f"{VISIBLE_GPUS} is {visible!r}, which names {len(gpus)}; with a virtual "
            f"local rank each rank needs a GPU of its own, at least {local_rank + 1}: "
            "name more, or start fewer ranks"
        )
    return gpus[local_rank]
