"""The port at which ranks of other hosts reach a process, in whole programs."""

from harness.ranks import Processes


def test_ranks_reach_each_other_where_they_are_advertised(monkeypatch):
    monkeypatch.setenv("ALLHANDS_ADVERTISE", "::ffff:127.0.0.1")
    source = """
        from allhands.groups.world import current
        array = np.ones(100_000)
        dist.all_reduce(array)
        assert (array == 2).all()
        give([each.endpoints for each in current().roster().identities])
    """
    with Processes(2, source, hosts="ab") as job:
        first, second = job.join()
    assert first == second
    assert all(each.startswith("[::ffff:127.0.0.1]:") for each in first)


def test_a_port_is_free_for_the_next_world_and_serves_a_shrunk_one():
    source = """
        from allhands.groups.world import current
        kept = [dist.new_group([0, 1])]
        places = [current().roster().port.endpoints]
        number = places[0].rpartition(":")[2]
        os.environ["ALLHANDS_PORT_RANGE"] = number  # there is no other
        for turn in range(2):
            dist.barrier()
            dist.destroy_process_group()
            dist.init_process_group(
                init_method=f"file://{folder}/again{turn}", rank=rank, world_size=size
            )
            kept.append(dist.new_group([0, 1]))
            places.append(current().roster().port.endpoints)
        if rank != 2:
            dist.shrink_group([2])
            array = np.ones(3)
            dist.all_reduce(array)
            assert (array == 2).all()
            places.append(current().roster().port.endpoints)
        give(places)
    """
    with Processes(3, source, hosts="abc") as job:
        for places in job.join():
            assert len(set(places)) == 1
            assert places[0]


def test_a_forked_child_ends_without_the_port():
    source = """
        import gc
        dist.barrier()
        child = os.fork()
        if not child:
            gc.collect()
            sys.exit(0)
        ended = os.waitpid(child, 0)[1]
        dist.barrier()  # the connection is as it was
        give(ended)
    """
    with Processes(2, source, hosts="ab") as job:
        assert job.join() == [0, 0]
