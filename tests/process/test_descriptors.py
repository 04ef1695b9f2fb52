"""File descriptors of a group: what it needs, without them, and what it gives back."""

import pytest

from harness.ranks import Processes


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_rank_that_had_no_descriptor_for_the_group_may_call_again(room):
    """With room for one, it connects and loses what the other rank sends it."""
    source = f"""
        import resource
        first = np.ones(3)
        texts = []
        if rank == 1:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + {room}, limits[1]))
            try:
                dist.all_reduce(first)
            except dist.DistBackendError as error:
                texts.append(str(error))
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if rank == 0 or texts:
            dist.all_reduce(first)
        second = np.full(1000, rank)
        dist.all_reduce(second)
        give((first.tolist(), second[999], texts))
    """
    with Processes(2, source) as job:
        results = job.join()
    for first, second, _ in results:
        assert first == [2, 2, 2]
        assert second == 1
    for text in results[1][2]:
        assert "Too many open files (this process may have" in text
        assert "`ulimit -n`" in text
    if room == 0:
        assert results[1][2]


def test_a_destroyed_group_keeps_no_descriptor():
    source = """
        def opened():
            names = {}
            for fd in os.listdir("/proc/self/fd"):
                try:
                    names[fd] = os.readlink(f"/proc/self/fd/{fd}")
                except FileNotFoundError:
                    pass  # what listed them
            return names

        group = dist.new_group()
        dist.barrier()
        before = opened()
        request = dist.all_reduce_init(np.zeros(3), group=group)
        dist.barrier(group=group)
        dist.all_reduce(np.zeros(3), group=group)
        dist.destroy_process_group(group)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until the hand-over's thread has ended
            kept = {fd: name for fd, name in opened().items() if fd not in before}
            if not kept:
                break
        give(kept)
        dist.barrier()
    """
    with Processes(2, source) as job:
        assert job.join() == [{}, {}]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_a_first_use_would_load_is_there_without_descriptors(library):
    pytest.importorskip(library)
    source = f"""
        import resource
        if "{library}" == "torch":
            dist.destroy_process_group()
            import torch
            dist.init_process_group(
                store=FileStore(f"{{folder}}/again", size), rank=rank, world_size=size)
        dist.barrier()
        ones = sys.modules["{library}"].ones
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        done = []
        future = dist.all_reduce(ones(3), async_op=True).get_future()
        done.append(float(future.wait()[0][0]))
        objects = [None] * size
        dist.all_gather_object(objects, {{"rank": rank, "array": ones(2)}})
        done.append([each["rank"] for each in objects])
        dist.all_reduce_coalesced([ones(1), ones(2)])
        try:
            dist.all_reduce(np.array(["text"]))
        except TypeError:
            done.append("TypeError")
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        give(done)
    """
    with Processes(2, source) as job:
        assert job.join() == [[2, [0, 1], "TypeError"]] * 2
