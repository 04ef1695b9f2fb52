"""Serialized: a pickled object as sections that are sent one by one.

First come the *pieces* of its pickle stream (protocol 5), then the large *buffers* to
which the stream refers: the data of NumPy arrays and of torch's CPU storages. A buffer
is sent from its place in the object and received at its place in the new object, so it
is never copied. Pieces are small, and each is freed after it has been read. So an
object that consists of pieces (a long `bytes`, a million numbers) needs little
additional memory for its stream.

A `str` is an exception: it is decoded at once, from a copy of its own size.
"""

from __future__ import annotations

import copyreg
import io
import mmap
import os
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from allhands.arrays import reducers
from allhands.errors import DistBackendError

__all__ = ["NOTHING", "Numbers", "Section", "Serialized", "pack", "room_for", "unpack"]

Section: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

NOTHING: Section = np.empty(0, np.uint8)

_LEAST_BUFFER = 1 << 16  # smaller buffers cost less as a part of the stream
_LARGEST_PIECE = 1 << 22  # the most that a receiver holds twice


class Serialized(NamedTuple):
    """See the module. `unpack` empties it."""

    pieces: list[Section]
    buffers: list[Section]

    def sections(self) -> list[Section]:
        """Return all sections in the order of sending."""
        return [*self.pieces, *self.buffers]

    def at(self, place: int) -> Section:
        """Return the section at `place`; an empty one beyond the last."""
        if place < len(self.pieces):
            return self.pieces[place]
        place -= len(self.pieces)
        return self.buffers[place] if place < len(self.buffers) else NOTHING

    def numbers(self) -> Numbers:
        """Return the number of pieces, followed by the size of each section."""
        sizes = [section.nbytes for section in self.sections()]
        return np.array([len(self.pieces), *sizes])


def pack(obj: Any) -> Serialized:
    """Pickle `obj`. The result refers to memory of `obj`, which must not change."""
    stream = _Writer()
    pickler = pickle.Pickler(stream, 5, buffer_callback=stream.keeps)
    more = reducers()
    if more:
        pickler.dispatch_table = {**copyreg.dispatch_table, **more}
    pickler.dump(obj)
    return stream.serialized()


def room_for(numbers: Sequence[Numbers]) -> list[Serialized]:
    """Allocate memory for the objects that `numbers` describe, if they are plausible.

    Raises:
        DistBackendError: the objects together are larger than the memory of this host.
        MemoryError: this host does not have enough memory left.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    listed = [(sizes[0], sizes[1:]) for sizes in map(np.ndarray.tolist, numbers)]
    total = sum(sum(sizes) for _, sizes in listed)
    if total > memory or any(min(sizes) < 0 for _, sizes in listed):
        raise DistBackendError(
            f"objects of {total} bytes are announced, this host has {memory}"
        )
    arriving = []
    for num_pieces, sizes in listed:
        pieces = [_room_for_piece(size) for size in sizes[:num_pieces]]
        buffers = [np.empty(size, np.uint8) for size in sizes[num_pieces:]]
        arriving.append(Serialized(pieces, buffers))
    return arriving


def unpack(serialized: Serialized, weights_only: bool = False) -> Any:
    """Return the object of which all sections have arrived.

    Raises:
        pickle.UnpicklingError: with `weights_only`, the object contains more than data.
    """
    if weights_only:
        from allhands.ops.restricted import RestrictedUnpickler  # slow to import

        file = io.BufferedReader(_Reader(serialized.pieces))
        return RestrictedUnpickler(file, serialized.buffers).load()
    if len(serialized.pieces) == 1:  # usual; a file would take ten times as long
        return pickle.loads(serialized.pieces[0].data, buffers=serialized.buffers)
    stream = _Reader(serialized.pieces)
    return pickle.Unpickler(stream, buffers=serialized.buffers).load()


def _room_for_piece(size: int) -> Section:
    """Allocate memory for a piece; memory of a large piece returns to the system.

    Memory from malloc may stay with the process if other pieces lie above it.
    """
    if size < _LARGEST_PIECE:
        return np.empty(size, np.uint8)
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


class _Writer:
    """A file that pickle writes a stream to; it cuts the stream into pieces."""

    def __init__(self) -> None:
        self._serialized = Serialized([], [])
        self._small: list[bytes] = []
        self._num_small = 0  # bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next part of the stream; pickle passes a large `bytes` itself."""
        if isinstance(data, memoryview):  # of a str, valid only during this call
            data = bytes(data)
        if len(data) < _LARGEST_PIECE - self._num_small:
            self._small.append(bytes(data))
            self._num_small += len(data)
            return
        self._join()
        raw = np.frombuffer(data, np.uint8)
        for start in range(0, raw.size, _LARGEST_PIECE):
            self._serialized.pieces.append(raw[start : start + _LARGEST_PIECE])

    def keeps(self, buffer: pickle.PickleBuffer) -> bool:
        """Return whether the stream shall contain `buffer`; else keep it separately."""
        raw = buffer.raw()
        if raw.nbytes < _LEAST_BUFFER:
            return True
        self._serialized.buffers.append(np.frombuffer(raw, np.uint8))
        return False

    def serialized(self) -> Serialized:
        """Return the pieces and buffers written so far."""
        self._join()
        return self._serialized

    def _join(self) -> None:
        if self._small:
            self._serialized.pieces.append(
                np.frombuffer(b"".join(self._small), np.uint8)
            )
            self._small, self._num_small = [], 0


class _Reader(io.RawIOBase):
    """A file that pickle reads a stream from; it drops each piece after reading it."""

    def __init__(self, pieces: list[Section]) -> None:
        self._pieces = pieces
        self._pieces.reverse()  # the next one is the last
        self._start = 0

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` as far as data is left; return the number of bytes."""
        output = np.frombuffer(target, np.uint8)
        filled = 0
        while filled < output.size and self._pieces:
            piece = self._pieces[-1]
            part = piece[self._start : self._start + output.size - filled]
            output[filled : filled + part.size] = part
            filled += part.size
            self._start += part.size
            if self._start == piece.size:
                self._pieces.pop()
                self._start = 0
        return filled

    def read(self, size: int = -1) -> Any:
        """Return the next `size` bytes in an object with the buffer protocol."""
        if self._pieces and size <= self._pieces[-1].size - self._start:
            self._start += size
            return self._pieces[-1][self._start - size : self._start]
        output = np.empty(size, np.uint8)
        return output[: self.readinto(output)]
