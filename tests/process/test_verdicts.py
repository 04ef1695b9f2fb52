"""What is said of jobs with a planted fault; of healthy ones nothing is."""

import pytest

from harness.faults import Job

# Name: ranks, program, kind, guilty ranks. The verdict has the line marked HERE, and it
# names the same ranks where the record of a guilty or of another rank is missing.
FAULTS = {
    "an exception while others wait": (
        3,
        """
if rank == 1:
    raise ValueError("bad sample")  # HERE
dist.all_reduce(x)
""",
        "exception",
        [1],
    ),
    "the same exception on all ranks": (
        2,
        """
raise ValueError("bad setting")  # HERE
""",
        "exception",
        [0, 1],
    ),
    "one rank of three in another operation": (
        3,
        """
if rank == 2:
    dist.broadcast(x, 0)  # HERE
else:
    dist.all_reduce(x)
""",
        "mismatch",
        [2],
    ),
    "another size on one rank of four": (
        4,
        """
y = np.ones(5 if rank == 1 else 4, np.float32)
dist.all_reduce(y)  # HERE
""",
        "mismatch",
        [1],
    ),
    "another dtype in a subgroup": (
        4,
        """
group = dist.new_group([1, 2, 3])
if rank:
    y = x.astype(np.float64) if rank == 3 else x
    dist.all_reduce(y, group=group)  # HERE
dist.barrier()
""",
        "mismatch",
        [3],
    ),
    "two ranks that call different things": (
        2,
        """
if rank == 0:
    dist.barrier()
else:
    dist.all_reduce(x)  # HERE
""",
        "mismatch",
        [0, 1],
    ),
    "collectives in opposite order on two groups": (
        2,
        """
a, b = dist.new_group(), dist.new_group()
if rank == 0:
    dist.all_reduce(x, group=a)  # HERE
    dist.all_reduce(x, group=b)
else:
    dist.all_reduce(x, group=b)
    dist.all_reduce(x, group=a)
""",
        "cycle",
        [0, 1],
    ),
    "a ring of receives": (
        3,
        """
dist.recv(x, (rank - 1) % size)  # HERE
dist.send(x, (rank + 1) % size)
""",
        "cycle",
        [0, 1, 2],
    ),
    "a rank that sleeps": (
        3,
        """
if rank == 1:
    time.sleep(999)  # HERE
dist.all_reduce(x)
""",
        "stuck",
        [1],
    ),
    "a rank that loops": (
        2,
        """
if rank == 0:
    while True: x += 1  # HERE
dist.barrier()
""",
        "stuck",
        [0],
    ),
    "a rank that waits for a lock": (
        3,
        """
lock = threading.Lock()
lock.acquire()
if rank == 2:
    lock.acquire()  # HERE
dist.broadcast(x, 0)
""",
        "stuck",
        [2],
    ),
    "a rank that waits for a key": (
        2,
        """
store = dist.HashStore()
if rank == 1:
    store.wait(["never"], timedelta(seconds=900))  # HERE
dist.barrier()
""",
        "stuck",
        [1],
    ),
    "a message that nobody sends": (
        3,
        """
if rank == 0:
    dist.recv(x, 2)
if rank == 2:
    time.sleep(999)  # HERE
dist.barrier()
""",
        "stuck",
        [2],
    ),
    "a rank that is killed": (
        3,
        """
with dist.debug.faults("rank=1,do=kill"):
    dist.all_reduce(x)  # HERE
""",
        "missing",
        [1],
    ),
    "a rank that is stopped": (
        3,
        """
with dist.debug.faults("rank=2,do=stop"):
    dist.all_reduce(x)  # HERE
""",
        "missing",
        [2],
    ),
    "a rank that leaves early": (
        3,
        """
if rank == 2:
    sys.exit()
dist.all_reduce(x)  # HERE
""",
        "missing",
        [2],
    ),
    "an asynchronous operation that one rank never issues": (
        3,
        """
if rank == 1:
    time.sleep(999)  # HERE
dist.all_reduce(x, async_op=True).wait()
""",
        "stuck",
        [1],
    ),
    "another root on one rank": (
        3,
        """
dist.broadcast(x, 1 if rank == 0 else 2)  # HERE
""",
        "mismatch",
        [0],
    ),
    "a message with another tag": (
        2,
        """
if rank == 0:
    dist.recv(x, 1, tag=5)  # HERE
else:
    dist.send(x, 0, tag=6)
    dist.barrier()
""",
        "cycle",
        [0, 1],
    ),
    "one collective too many on one rank": (
        3,
        """
dist.all_reduce(x)
if rank == 1:
    dist.all_reduce(x)  # HERE
time.sleep(999 if rank != 1 else 0)
""",
        "stuck",
        [0, 2],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(tmp_path, name):
    size, body, kind, guilty = FAULTS[name]
    job = Job(tmp_path, body, size)
    job.run()
    found = job.verdict()
    assert found is not None
    assert (found.kind, list(found.ranks)) == (kind, guilty), found.line
    assert f"{job.path}:{job.line_of('HERE')}" in found.line, found.line
    innocent = [rank for rank in range(size) if rank not in guilty]
    if innocent and (len(guilty) == 1 or kind != "stuck") and size > 2:
        found = job.verdict(without=innocent[0])
        assert found is not None
        assert list(found.ranks) == guilty, found.line
    if len(guilty) == 1 and size > 2:
        found = job.verdict(without=guilty[0])
        assert found is not None
        assert list(found.ranks) == guilty, found.line


HEALTHY = {
    "all sorts of operations": """
for i in range(200):
    dist.all_reduce(x)
    dist.broadcast(x, i % size)
    work = dist.all_reduce(x, async_op=True)
    dist.isend(x, (rank + 1) % size)
    dist.recv(x, (rank - 1) % size)
    work.wait()
    x.fill(1)
dist.debug.dump(os.environ["ALLHANDS_DUMPS"] + f"/rank_{rank}.json")
dist.barrier()
""",
    "asked while they run": """
for i in range(30):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    time.sleep(0.01 * (i % 3 == rank))
    os.kill(os.getpid(), signal.SIGUSR2)
""",
    "an error that is dealt with": """
try:
    dist.all_reduce(np.ones(1 + rank))
except dist.CollectiveMismatchError:
    pass
dist.all_reduce(x)
time.sleep(0.01)
dist.debug.dump(os.environ["ALLHANDS_DUMPS"] + f"/rank_{rank}.json")
dist.barrier()
""",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_job(tmp_path, name):
    job = Job(tmp_path, HEALTHY[name], 3, limit=60)
    assert job.run() == [0, 0, 0]
    found = job.verdict()
    assert found is None, found.line
    found = job.verdict(without=1)
    assert found is None, found.line
