"""Records as torch's flight recorder writes them: a pickle per rank.

Its analyser knows torch's operations alone, so what torch has none of goes as the
operation that it is nearest to; and no state but its three.
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
    """Write `folder`/rank_<n> of each; `torchfrtrace --prefix rank_ folder` reads them.

    Raises:
        OSError: they cannot be written.
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
