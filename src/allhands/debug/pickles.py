"""Writes records in the form of torch's flight recorder: a pickle per rank.

torch's analyser knows only torch's operations. So operations that torch does not have
are written as the nearest one, and states as one of its three.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from typing import Any

from allhands.debug.dumps import Dump

__all__ = ["write_pickles"]

_NEAREST = {
    "scan": "all_reduce",
    "exscan": "all_reduce",
    "all_reduce_sparse": "all_reduce",
    "all_reduce_coalesced": "allreduce_coalesced",
    "all_gather_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter_coalesced": "reduce_scatter_tensor_coalesced",
    "empty_shared": "barrier",
}


def write_pickles(dumps: Iterable[Dump], folder: str) -> None:
    """Write `folder`/rank_<n> for each; `torchfrtrace --prefix rank_ folder` reads it.

    Raises:
        OSError: the files cannot be written.
    """
    os.makedirs(folder, exist_ok=True)
    for dump in dumps:
        told = {**dump.raw, "entries": [_entry(entry) for entry in dump.raw["entries"]]}
        with open(os.path.join(folder, f"rank_{dump.rank}"), "wb") as file:
            pickle.dump(told, file)


def _entry(told: dict[str, Any]) -> dict[str, Any]:
    op, *peers = str(told["profiling_name"]).partition(":")[2].split(" ")
    name = " ".join([_NEAREST.get(op, op), *peers])
    state = "started" if told["state"] == "failed" else told["state"]
    return {**told, "profiling_name": f"gloo:{name}", "state": state}
