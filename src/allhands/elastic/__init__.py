"""Running the ranks of a job; `allhands.run` is its command line."""

from allhands.elastic.agent import Agent, Outcome
from allhands.elastic.error_file import ERROR_FILE
from allhands.elastic.exception_text import Frame, Raised, parse_exception
from allhands.elastic.failure import Failure
from allhands.elastic.filtered_log import parse_words
from allhands.elastic.job import Job, Preload
from allhands.elastic.joining import Joined, alone, among
from allhands.elastic.logs import DefaultLogsSpecs, Std, parse_std
from allhands.elastic.node import Node
from allhands.elastic.program_module import check_module
from allhands.elastic.records import folder_within
from allhands.elastic.signals import ENDING_SIGNALS, parse_signals
from allhands.elastic.visible_gpus import VISIBLE_GPUS, gpu_of

__all__ = [
    "ENDING_SIGNALS",
    "ERROR_FILE",
    "VISIBLE_GPUS",
    "Agent",
    "DefaultLogsSpecs",
    "Failure",
    "Frame",
    "Job",
    "Joined",
    "Node",
    "Outcome",
    "Preload",
    "Raised",
    "Std",
    "alone",
    "among",
    "check_module",
    "folder_within",
    "gpu_of",
    "parse_exception",
    "parse_signals",
    "parse_std",
    "parse_words",
]
