"""torch's methods of a group: both forms of each, options, and a Work in return."""

import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from allhands.options import AllgatherOptions
from harness.ranks import LIMIT, run_ranks


def options(kind, **values):
    """An options object as programs make it: empty, then filled."""
    made = kind()
    for name, value in values.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


def results_of(*calls):
    """What each of `calls(group, rank) -> (work, array)` leaves; by rank."""

    def body(rank):
        results = []
        for call in calls:
            work, array = call(dist.group.WORLD, rank)
            assert work.wait() is True
            if isinstance(array, list):
                results.append([part.tolist() for part in array])
            else:
                results.append(array.tolist())
        assert all(result == results[0] for result in results)
        return results[0]

    return run_ranks(2, body)


def with_array(make, *forms):
    """Calls for `results_of`: each form on an array of its own."""

    def call(group, rank, form):
        array = make(rank)
        return form(group, array, rank), array

    return [lambda group, rank, form=form: call(group, rank, form) for form in forms]


def test_allreduce():
    chosen = options(dist.AllreduceOptions, reduceOp=ReduceOp.MAX)
    calls = with_array(
        lambda rank: np.array([rank + 2.0]),
        lambda g, x, _: g.allreduce([x], chosen),
        lambda g, x, _: g.allreduce([x], ReduceOp.MAX, timedelta(seconds=9)),
        lambda g, x, _: g.allreduce(x, op=ReduceOp.MAX),
        lambda g, x, _: g.allreduce(tensor=x, op=ReduceOp.MAX),
        lambda g, x, _: g.allreduce(x, opts=chosen),
        lambda g, x, _: g.allreduce_coalesced([x], chosen),
    )
    assert results_of(*calls) == [[3], [3]]


def test_reduce():
    chosen = options(dist.ReduceOptions, rootRank=1, reduceOp=ReduceOp.PRODUCT)
    calls = with_array(
        lambda rank: np.array([rank + 2.0]),
        lambda g, x, _: g.reduce([x], chosen),
        lambda g, x, _: g.reduce(x, 1, ReduceOp.PRODUCT),
        lambda g, x, _: g.reduce(tensor=x, root=1, op=ReduceOp.PRODUCT),
    )
    assert results_of(*calls) == [[2], [6]]


def test_broadcast():
    calls = with_array(
        lambda rank: np.array([rank + 2.0]),
        lambda g, x, _: g.broadcast([x], options(dist.BroadcastOptions, rootRank=1)),
        lambda g, x, _: g.broadcast(x, 1, timedelta(seconds=9)),
        lambda g, x, _: g.broadcast(tensor=x, root=1),
    )
    assert results_of(*calls) == [[3], [3]]


def test_reduce_scatter():
    inputs = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    chosen = options(dist.ReduceScatterOptions, reduceOp=ReduceOp.SUM)
    calls = with_array(
        lambda rank: np.zeros(2),
        lambda g, x, _: g.reduce_scatter([x], [inputs], chosen),
        lambda g, x, _: g.reduce_scatter(x, inputs, ReduceOp.SUM),
        lambda g, x, _: g.reduce_scatter(output=x, input=inputs),
        lambda g, x, _: g.reduce_scatter_single(x, np.stack(inputs), chosen),
        lambda g, x, _: g._reduce_scatter_base(x, np.stack(inputs), chosen),
        lambda g, x, _: g.reduce_scatter_tensor_coalesced([x], [np.stack(inputs)]),
    )
    assert results_of(*calls) == [[2, 4], [6, 8]]


def test_allgather():
    calls = with_array(
        lambda rank: [np.zeros(1), np.zeros(1)],
        lambda g, x, r: g.allgather([x], [np.full(1, float(r))], AllgatherOptions()),
        lambda g, x, r: g.allgather(x, input_tensor=np.full(1, float(r))),
        lambda g, x, r: g.allgather_coalesced([x[:1], x[1:]], [np.full(1, float(r))]),
    )
    assert results_of(*calls) == [[[0], [1]]] * 2
    calls = with_array(
        lambda rank: np.zeros(2),
        lambda g, x, r: g.all_gather_single(x, np.full(1, float(r))),
        lambda g, x, r: g._allgather_base(output=x, input=np.full(1, float(r))),
        lambda g, x, r: g.allgather_into_tensor_coalesced([x], [np.full(1, float(r))]),
    )
    assert results_of(*calls) == [[0, 1]] * 2


def test_gather():
    chosen = options(dist.GatherOptions, rootRank=1)
    calls = with_array(
        lambda rank: [np.zeros(1), np.zeros(1)],
        lambda g, x, r: g.gather([x] if r else [], [np.full(1, float(r))], chosen),
        lambda g, x, r: g.gather(x if r else [], np.full(1, float(r)), 1),
    )
    assert results_of(*calls) == [[[0], [0]], [[0], [1]]]


def test_scatter():
    chosen = options(dist.ScatterOptions, rootRank=1)
    parts = [np.array([5.0]), np.array([6.0])]
    calls = with_array(
        lambda rank: np.zeros(1),
        lambda g, x, r: g.scatter([x], [parts] if r else [], chosen),
        lambda g, x, r: g.scatter(x, parts if r else [], root=1),
    )
    assert results_of(*calls) == [[5], [6]]


def test_alltoall():
    calls = with_array(
        lambda rank: [np.zeros(1), np.zeros(1)],
        lambda g, x, r: g.alltoall(
            x, [np.full(1, 10.0 * r + i) for i in (0, 1)], dist.AllToAllOptions()
        ),
    )
    assert results_of(*calls) == [[[0], [10]], [[1], [11]]]
    calls = with_array(
        lambda rank: np.zeros(2),
        lambda g, x, r: g.alltoall_base(x, 10.0 * r + np.arange(2), [], []),
        lambda g, x, r: g.all_to_all_single(x, 10.0 * r + np.arange(2), [1, 1], [1, 1]),
    )
    assert results_of(*calls) == [[0, 10], [1, 11]]


def test_barrier_and_names():
    def body(rank):
        group = dist.group.WORLD
        group.barrier().wait()
        group.barrier(options(dist.BarrierOptions, device_ids=[0])).wait()
        assert (group.group_name, group.group_desc) == ("0", "default_pg")
        assert group.BackendType.GLOO is dist.ProcessGroup.GLOO

    run_ranks(2, body)


def test_the_time_limit_of_options():
    def body(rank):
        chosen = dist.BarrierOptions(timeout=timedelta(seconds=0.1))
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match=r"limit 0\.1"):
                dist.group.WORLD.barrier(chosen).wait()
        meet.wait(LIMIT)

    meet = threading.Barrier(2)
    run_ranks(2, body)


def test_bad_arguments():
    def body(rank):
        group, one = dist.group.WORLD, np.zeros(1)
        with pytest.raises(ValueError, match="single-element tensor list, got 2"):
            group.reduce([one, one])
        with pytest.raises(RuntimeError, match="broadcast: invalid root rank: 3"):
            group.broadcast(one, 3)
        with pytest.raises(TypeError, match=r"of type datetime\.timedelta, got 5"):
            group.allreduce(one, timeout=5)

    run_ranks(1, body)


@pytest.mark.parametrize("name", ["gather_single", "gather_into_tensor"])
def test_gather_into_one_tensor(name):
    def body(rank):
        everyone = np.zeros((2, 3))
        options = dist.GatherOptions(rootRank=1)
        getattr(dist.group.WORLD, name)(
            everyone, np.full(3, rank + 1.0), options
        ).wait()
        with pytest.warns(FutureWarning, match="use `allhands.gather_single`"):
            dist.gather_into_tensor(
                np.full(3, rank + 5.0), everyone[:1].repeat(2, 0) if rank == 0 else None
            )
        return everyone.tolist()

    nothing, ones, twos = [0.0] * 3, [1.0] * 3, [2.0] * 3
    assert run_ranks(2, body) == [[nothing, nothing], [ones, twos]]
