"""How many ranks a node has: a number, or what this host has of CPUs or GPUs."""

from __future__ import annotations

import ctypes
import os

from allhands.rendezvous.place import MOST_RANKS

__all__ = ["determine_local_world_size"]


def determine_local_world_size(nproc_per_node: str) -> int:
    """Number of ranks for a value of `--nproc-per-node`.

    Raises:
        ValueError: it is no positive number and none of auto, cpu, gpu; or gpu, and no
            GPU can be counted; or more ranks than a job can have.
    """
    if nproc_per_node == "cpu":
        return len(os.sched_getaffinity(0))
    if nproc_per_node == "gpu":
        return _num_gpus()
    if nproc_per_node == "auto":
        try:
            return _num_gpus()
        except ValueError:
            return len(os.sched_getaffinity(0))
    if not nproc_per_node.isdecimal() or int(nproc_per_node) < 1:
        raise ValueError(
            f"--nproc-per-node is {nproc_per_node!r}; want a number from 1 up, or one "
            "of auto, cpu, gpu"
        )
    if (number := int(nproc_per_node)) > MOST_RANKS:
        raise ValueError(
            f"--nproc-per-node is {number}; a job has at most {MOST_RANKS} ranks"
        )
    return number


def _num_gpus() -> int:
    """Ask CUDA's driver for the number of GPUs, as CUDA_VISIBLE_DEVICES limits it."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        reason = "there is no CUDA driver (libcuda.so.1) here"
    else:
        status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        reason = f"CUDA's driver finds none (error {status})"
    if count.value < 1:
        raise ValueError(
            f"--nproc-per-node gpu: cannot count GPUs: {reason}; give a number, or cpu"
        )
    return count.value
