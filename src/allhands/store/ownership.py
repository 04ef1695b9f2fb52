"""Checks who could have written a file that processes share.

A store's file holds what a job knows about its ranks, and the token by which the ranks
recognize each other. In a directory that others can write to, another user may have
made the file in advance. So the file has to belong to root or to the owner of the files
that this process makes, and nobody else may be allowed to write to it.
"""

from __future__ import annotations

import os
import stat
import tempfile

__all__ = ["distrust"]

_ROOT = 0
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def distrust(file: int, path: str) -> str:
    """Return why the open `file`, found at `path`, cannot be trusted, and what to do.

    The text continues a sentence about the file. It is empty if the file can be
    trusted.
    """
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file; choose another path"
    is_ours = status.st_uid in (os.geteuid(), _ROOT)
    is_open = bool(status.st_mode & _WRITABLE)
    if is_ours and not is_open:
        return ""
    # A file server may give this process's files to another user, or keep no modes.
    usual = _status_of_our_files(path)
    if not is_ours and (usual is None or status.st_uid != usual.st_uid):
        return (
            f"belongs to user {status.st_uid}, who may have written anything into it; "
            f"this process runs as user {os.geteuid()}. Remove it, or choose a path in "
            "a directory that only you can write to"
        )
    if is_open and (usual is None or not usual.st_mode & _WRITABLE):
        mode = stat.S_IMODE(status.st_mode)
        return (
            f"has mode {mode:04o}: others than its owner may write to it. Remove "
            "it, or take that from them (chmod go-w)"
        )
    return ""


def _status_of_our_files(path: str) -> os.stat_result | None:
    """Return the status of a private file that this process makes beside `path`."""
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(path) or ".") as ours:
            return os.fstat(ours.fileno())
    except OSError:
        return None
