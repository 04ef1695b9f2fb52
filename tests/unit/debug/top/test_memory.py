"""What is read of another process's flight memory: what it wrote, and no nonsense."""

import gc
import os
import random
import struct

import numpy as np
import pytest

import allhands as dist
from allhands import _C
from allhands.debug.top.memory import FlightFile, open_memory
from allhands.elastic.memory_file import memory_file
from harness.ranks import run_ranks

HEADER = "<8sIIIIIIII16s64s"
ROW = "<QQIIQQQ16xQQ48xQQ48xiiQ48s"
SLOTS_AT = 8192


def views():
    file = open_memory(os.getpid())
    try:
        return file.groups()
    finally:
        file.close()


def test_a_group_is_seen_from_outside():
    def body(rank):
        older = {each.key for each in views()}  # of earlier tests, some of this name
        dist.barrier()
        group = dist.new_group(group_desc="watched")
        for _ in range(5):
            dist.all_reduce(np.ones(3), group=group)
        if rank == 0:
            dist.send(np.ones(2), 1, group=group)
        else:
            dist.recv(np.ones(2), 0, group=group)
        dist.barrier(group=group)
        seen = [each for each in views() if each.name == group.group_name]
        dist.barrier(group=group)
        return [each for each in seen if each.key not in older]

    for rank, seen in enumerate(run_ranks(2, body)):
        own = [each for each in seen if each.rank == rank and each.num_messages == 1]
        assert own
        assert own[0].size == 2
        assert own[0].num_collectives >= 6
        assert own[0].num_bytes == 5 * 24 + 16
        assert {each.op for each in own[0].operations} >= {["send", "recv"][rank]}


def test_groups_that_come_and_go_take_nothing():
    def body(rank):
        def cycle():
            group = dist.new_group()
            dist.all_reduce(np.ones(3), group=group)
            dist.destroy_process_group(group)

        def size():
            status = os.stat(memory_file(os.getpid(), "allhands.flight")[0])
            return status.st_size, status.st_blocks

        gc.collect()  # what earlier tests left may go meanwhile, and only makes room
        cycle()
        before = size()
        for _ in range(20):
            cycle()
        return before, size()

    [(before, after)] = run_ranks(1, body)
    assert after[0] <= before[0]
    assert after[1] <= before[1]


def header(world=b"w" * 16, rank=1, size=2, *, magic=b"ahflight", version=1, rows=1):
    return struct.pack(
        HEADER, magic, version, 256, rows, 0, 2, rank, size, 0, world, b"host"
    )


def row(*, generation=1, slots=32, at=SLOTS_AT, last=3, name=b"g", rank=1, size=2):
    return struct.pack(
        ROW, generation, 9, rank, size, at, 0, slots, last, 24, 0, 0, -5, 0, 0, name
    )


def slot(number, state=4, what=1 << 63):
    return struct.pack("<QQQQQQQq", number << 3 | state, 0, 7, 8, 0, what, 1, 0)


@pytest.fixture
def reading(tmp_path):
    path = tmp_path / "memory"
    files = []

    def read(head, rows=b"", slots=b"", cut=None, *, keep=False):
        content = head.ljust(4096, b"\0") + rows.ljust(SLOTS_AT - 4096, b"\0") + slots
        path.write_bytes(content[:cut])
        files.append(FlightFile(os.open(path, os.O_RDONLY)))
        first = files[-1] if keep else files[-1].header()
        return first, files[-1].groups()

    yield read
    for file in files:
        file.close()


def test_what_fits_is_read(reading):
    slots = b"".join([b"\0" * 64, slot(1), slot(2), slot(3, 3)])
    told, [group] = reading(header(), row(), slots)
    assert told == ("w" * 16, 1, 2, "host")
    assert [each.number for each in group.under_way] == [3]
    assert [each.number for each in group.operations] == [3, 2]
    assert group.num_waiting == 0
    assert group.operations[0].partner == -1


def test_a_look_at_a_group_takes_two_readings(reading, monkeypatch):
    """Each costs a busy CPU a few microseconds."""
    slots = b"".join([b"\0" * 64, slot(1), slot(2), slot(3, 3)])
    read, plain = list[int](), os.pread
    monkeypatch.setattr(
        os, "pread", lambda fd, size, at: read.append(at) or plain(fd, size, at)
    )
    file, before = reading(header(), row(), slots, keep=True)
    read.clear()
    assert file.groups() == before
    assert len(read) == 2


def test_a_group_that_has_come_is_read(reading, tmp_path):
    slots = b"".join([b"\0" * 64, slot(1), slot(2), slot(3, 3)])
    file, [one] = reading(header(), row() + row(name=b"h"), slots, keep=True)
    with open(tmp_path / "memory", "r+b") as memory:
        memory.write(header(rows=2))
    assert [each.name for each in file.groups()] == [one.name, "h"]


@pytest.mark.parametrize(
    "head",
    [
        b"",
        header(magic=b"ahflighs"),
        header(version=2),
        header(rank=2),
        header(size=1 << 31),
        header()[:30],
    ],
)
def test_what_is_no_rank_is_none(reading, head):
    assert reading(head, cut=len(head))[0] is None


@pytest.mark.parametrize(
    ("rows", "num_operations"),
    [
        (row(generation=2), None),
        (row(slots=33), None),
        (row(slots=1 << 40), None),
        (row(rank=7), None),
        (row(at=1 << 63), 0),
        (row(at=SLOTS_AT + (1 << 40)), 0),
        (row(slots=0), 0),
    ],
)
def test_rows_that_do_not_fit_say_nothing(reading, rows, num_operations):
    slots = b"".join(slot(number) for number in range(6))
    _, groups = reading(header(), rows, slots)
    assert [len(each.operations) for each in groups] == (
        [] if num_operations is None else [num_operations]
    )


@pytest.mark.parametrize("cut", [4096, 4200, 4096 + 256 + 10, SLOTS_AT + 70])
def test_what_is_cut_ends_the_reading(reading, cut):
    rows = row() + row(name=b"h")
    _, groups = reading(header(rows=3), rows, slot(0) + slot(1) + slot(2), cut=cut)
    assert [each.name for each in groups] == ["g", "h"][: (cut - 4096) // 256]
    assert all(not each.operations for each in groups)


def test_a_slot_of_another_place_or_state_is_left_out(reading):
    slots = b"".join([b"\0" * 64, slot(2), slot(99), slot(3, 0), slot(36, 4)])
    _, [group] = reading(header(), row(), slots)
    assert all(each.number % 32 in (3, 4) for each in group.operations)


def test_names_have_no_controls_of_a_terminal(reading):
    _, [group] = reading(header(), row(name=b"\x1b[2J\xff" * 9))
    assert group.name.isprintable()


def test_any_bytes_are_read_without_an_error(reading):
    """As from a process that is broken, or that means ill."""
    chance = random.Random(7)
    for _ in range(300):
        size = chance.choice([0, 10, 120, 5000, 9000, 20000])
        content = bytearray(chance.randbytes(size))
        if chance.random() < 0.7:
            content[: len(header())] = header(rows=chance.choice([1, 3, 1 << 31]))
        _, groups = reading(bytes(content[:4096]), bytes(content[4096:8192]))
        assert all(each.name.isprintable() for each in groups)


def test_the_clock_is_that_of_the_records():
    before = _C.ticks_now()
    assert _C.ticks_now() >= before
    assert _C.collective_name(250) == "nothing"
