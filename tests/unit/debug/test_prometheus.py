"""What `dist.debug.stats` tells, as Prometheus's own parser reads it."""

import sys

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import allhands as dist
from allhands.debug.prometheus import prometheus_of_groups
from allhands.debug.waiting import OperationStats
from harness.ranks import run_ranks


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_all_figures_are_told():
    def body(rank):
        for _ in range(3):
            dist.all_reduce(np.ones(2000))
        dist.barrier()
        return dist.debug.stats()

    told, _ = run_ranks(2, body)
    text = dist.debug.prometheus(told, job='a "b"\\', group="dp")
    found = samples(text)
    assert text.count("# TYPE allhands_") == text.count(" gauge\n") == 6
    by_op = {each.op: each for each in told}
    reduced, barrier = by_op["all_reduce"], by_op["barrier"]

    def value(name, op, **labels):
        labels |= {"op": op, "job": 'a "b"\\', "group": "dp"}
        return found.pop((f"allhands_{name}", *sorted(labels.items())))

    assert value("calls", "all_reduce") == 3
    assert value("bytes", "all_reduce") == 48_000
    assert value("transfer_seconds", "all_reduce") == reduced.transfer
    assert value("call_seconds", "all_reduce", quantile="0.5") == reduced.p50
    assert value("call_seconds", "all_reduce", quantile="0.99") == reduced.p99
    assert value("calls", "barrier") == 1
    assert value("bytes", "barrier") == 0
    for each in (reduced, barrier):
        for rank in (0, 1):
            waited = value("waiting_seconds", each.op, rank=str(rank))
            assert waited == each.waiting[rank]
            last = value("times_last", each.op, rank=str(rank))
            assert last == each.times_last[rank]
    assert found == {}  # a barrier has nothing that is timed


def test_groups_of_one_description_are_told_apart():
    told = OperationStats("barrier", 3, 0, {0: 0.5, 1: 0.0}, None, None, None, {0: 3})
    text = prometheus_of_groups([(("1", "dp"), [told]), (("2", "dp"), [told])])
    found = samples(text)
    assert text.count("# TYPE allhands_") == 6
    for group in ("1", "2"):
        labels = {"group": group, "desc": "dp", "op": "barrier"}
        assert found[("allhands_calls", *sorted(labels.items()))] == 3
        labels["rank"] = "0"
        assert found[("allhands_waiting_seconds", *sorted(labels.items()))] == 0.5


def test_what_cannot_be_told_is_said(monkeypatch):
    assert samples(dist.debug.prometheus([])) == {}
    with pytest.raises(ValueError, match="labels of yours are called op, rank, as its"):
        dist.debug.prometheus([], rank="1", op="x", job="y")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ModuleNotFoundError, match="pip install prometheus-client"):
        dist.debug.prometheus([])
