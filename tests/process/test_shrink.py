"""Going on without ranks that died."""

import signal

from harness.ranks import Processes


def test_the_survivors_shrink_the_world_and_go_on():
    source = """
        dist.barrier()
        try:
            with dist.debug.faults("rank=0,do=kill"):
                while True:
                    dist.all_reduce(np.ones(1))
        except dist.RankFailedError as error:
            dist.shrink_group(error.ranks)
        total = np.array([rank])
        dist.all_reduce(total)
        dist.monitored_barrier()
        half = dist.new_group([1])
        give((dist.get_rank(), dist.get_world_size(), int(total[0])))
    """
    with Processes(3, source) as ranks:
        results = ranks.join(codes=[-signal.SIGKILL, 0, 0])
    assert results == [None, (0, 2, 3), (1, 2, 3)]


def test_a_dead_rank_fails_to_pass_the_monitored_barrier():
    source = """
        dist.barrier()
        try:
            with dist.debug.faults("rank=1,do=kill"):
                dist.monitored_barrier(wait_all_ranks=True)
        except dist.RankFailedError as error:
            give((str(error).splitlines()[0], error.ranks))
    """
    with Processes(3, source) as ranks:
        results = ranks.join(codes=[0, -signal.SIGKILL, 0])
    for rank in (0, 2):
        text = "Rank 1 failed to pass monitoredBarrier in 150000 ms"
        assert results[rank] == (f"[Rank {rank}]: {text}", [1])
