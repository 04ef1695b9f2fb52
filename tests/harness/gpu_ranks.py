"""A pytest plugin for ranks of `allhands run`: worlds of the backend GPU_BACKEND.

All ranks may share one GPU.
"""

import os

import torch

import allhands as dist
from harness import process_ranks

dist.init_process_group("native")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
process_ranks.become(os.environ["GPU_BACKEND"], limit=60.0)  # NCCL compiles nothing
