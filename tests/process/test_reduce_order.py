"""Reductions in rank order: the same bits wherever the ranks are."""

from harness.ranks import Processes

PLACEMENTS = ["00000", "00011", "01021", "01234"]
OPERATIONS = """
    import hashlib

    def numbers(dtype, count, seed=0):
        random = np.random.default_rng(100 * rank + seed)
        if np.dtype(dtype).kind == "i":
            return random.integers(-99, 99, count).astype(dtype)
        return (random.standard_normal(count) * 10.0 ** (rank % 3)).astype(dtype)

    def all_reduce(x, op, group):
        dist.all_reduce(x, op, group)
        return x

    def started(x, op, group):
        dist.all_reduce(x, op, group, async_op=True).wait()
        return x

    def persistent(x, op, group):
        request = dist.all_reduce_init(x, op, group)
        request()
        request()
        return x

    def coalesced(x, op, group):
        some = [x[: len(x) // 3], x[len(x) // 3 :].copy()]
        dist.all_reduce_coalesced(some, op, group)
        return np.concatenate(some)

    def strided(x, op, group):
        every_other = np.repeat(x, 2)[::2]
        dist.all_reduce(every_other, op, group)
        return every_other

    def reduce(x, op, group):
        dist.reduce(x, 1, op, group)
        return x if rank == 1 else np.zeros(1)

    def reduce_scatter(x, op, group):
        output = np.empty(len(x) // size, x.dtype)
        parts = x[: len(output) * size].reshape(size, -1)
        dist.reduce_scatter(output, list(parts), op, group)
        return output

    def scan(x, op, group):
        output = np.empty_like(x)
        dist.scan(output, x, op, group)
        return output

    calls = [all_reduce, started, persistent, coalesced, strided, reduce,
             reduce_scatter, scan]
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM(0.3 + rank)]

    def digests(group):
        found = {}
        for dtype in (np.float32, np.float16, np.complex64):
            for count in (7, 30011):
                for op in ops:
                    for call in calls:
                        result = call(numbers(dtype, count), op, group)
                        name = f"{call.__name__} {np.dtype(dtype)} {count} {op}"
                        bits = np.ascontiguousarray(result).tobytes()
                        found[name] = hashlib.sha1(bits).hexdigest()
        return found
    """


def test_results_have_the_same_bits_wherever_the_ranks_are():
    source = (
        OPERATIONS
        + """
    group = dist.new_group(pg_options=dist.NativeOptions(reduce_order="rank"))
    give(digests(dist.split_group(group, [list(range(size))])))
    """
    )
    results = []
    for hosts in PLACEMENTS:
        with Processes(5, source, hosts=hosts) as processes:
            results.append(processes.join())
    for hosts, given in zip(PLACEMENTS, results, strict=True):
        for rank, found in enumerate(given):
            expected = results[0][rank]
            differing = [call for call in found if found[call] != expected[call]]
            assert not differing, (hosts, rank, differing)


def test_the_setting_is_for_every_group(monkeypatch):
    source = (
        OPERATIONS
        + """
    def digest(x):
        return hashlib.sha1(x.tobytes()).hexdigest()

    mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    whole = all_reduce(numbers(np.float32, 30011), dist.ReduceOp.SUM, None)
    part = all_reduce(numbers(np.float32, 30011), dist.ReduceOp.SUM, mine)
    parts = [np.empty_like(part) for _ in range(size)]
    dist.all_gather(parts, part)
    give((digest(whole), digest(parts[0] + parts[1])))
    """
    )
    found = {}
    for order in ("any", "rank"):
        monkeypatch.setenv("ALLHANDS_REDUCE_ORDER", order)
        for hosts in ("0000", "0101"):
            with Processes(4, source, hosts=hosts) as processes:
                [found[order, hosts]] = set(processes.join())
    by_rank, by_host = found["rank", "0000"]
    assert by_rank != by_host
    assert found["any", "0000"] == found["rank", "0101"] == (by_rank, by_host)
    assert found["any", "0101"] == (by_host, by_host)
