"""What type checkers make of the operations' results: `make types` reads it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import assert_type

import allhands as dist


def shared() -> None:
    """The dtype's library tells which arrays `empty_shared` makes."""
    array = dist.empty_shared(3, np.float32)
    assert_type(array, npt.NDArray[np.float32])
    assert_type(dist.peer_array(array, 0), npt.NDArray[np.float32])
    assert_type(dist.empty_shared((2, 3), np.dtype(np.int8)), npt.NDArray[np.int8])
    assert_type(dist.empty_shared((2, 3), "float32"), npt.NDArray[Any])
    assert_type(dist.empty_shared((2, 3), torch.float32), torch.Tensor)
