"""What the machine can do at best."""

import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

from allhands.bench.limits import copy_bandwidth, measure_limits, wake_up_time
from harness.launcher import environment


def test_limits_are_plausible():
    before = os.sched_getaffinity(0)
    limits = measure_limits([8, 1 << 16])
    assert list(limits["copy"]) == [1 << 16]  # a copy of 8 bytes measures a call
    assert 1e7 < limits["copy"][1 << 16] < 1e13
    assert 1e-7 < limits["wake_up"] < 1
    if len(before) > 1:
        assert 1e-8 < limits["hand_over"] < 1
    assert os.sched_getaffinity(0) == before


def test_copies_begin_at_the_same_place_of_a_page(monkeypatch):
    places = []

    def copyto(target, source, plain=np.copyto):
        places.extend(array.ctypes.data % mmap.PAGESIZE for array in (target, source))
        assert not np.shares_memory(target, source)
        plain(target, source)

    monkeypatch.setattr(np, "copyto", copyto)
    for size in (16 << 10, (1 << 20) + 1):
        assert copy_bandwidth(size) > 0
        assert len(set(places)) == 1
        places.clear()


def test_one_cpu_has_nobody_to_hand_over_to():
    program = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "from allhands.bench.limits import measure_limits;"
        "limits = measure_limits([8]);"
        "assert limits['hand_over'] is None;"
        "assert 0 < limits['wake_up'] < 1"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True)


def test_the_affinity_comes_back_after_a_failure(monkeypatch):
    before = os.sched_getaffinity(0)
    monkeypatch.setattr("allhands.bench.limits._ECHO", "raise SystemExit")
    with pytest.raises(RuntimeError, match="on the other end of the pipes ended"):
        wake_up_time(sorted(before)[:1])
    assert os.sched_getaffinity(0) == before
