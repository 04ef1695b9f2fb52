"""Thirty programs with a planted fault, and healthy ones.

Of each fault: the number of ranks, the program, the kind of the verdict, and the guilty
ranks. The verdict has the line marked HERE. `PROLOGUE` of `faults.py` comes first.
"""

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
        "dead",
        [1],
    ),
    "a rank that is stopped": (
        3,
        """
with dist.debug.faults("rank=2,do=stop"):
    dist.all_reduce(x)  # HERE
""",
        "stuck",
        [2],
    ),
    "a rank that leaves early": (
        3,
        """
if rank == 2:
    sys.exit()
dist.all_reduce(x)  # HERE
""",
        "dead",
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
    "collectives in a ring of three groups": (
        3,
        """
pairs = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 2])]
first = pairs[rank]
dist.all_reduce(x, group=first)  # HERE
for pair in pairs:
    if pair is not first and rank in dist.get_process_group_ranks(pair):
        dist.all_reduce(x, group=pair)
""",
        "cycle",
        [0, 1, 2],
    ),
    "large messages head to head": (
        2,
        """
large, other = np.ones(1 << 20), np.ones(1 << 20)
dist.send(large, 1 - rank)  # HERE
dist.recv(other, 1 - rank)
""",
        "cycle",
        [0, 1],
    ),
    "another reduce operation on one rank": (
        4,
        """
op = dist.ReduceOp.MAX if rank == 2 else dist.ReduceOp.SUM
dist.all_reduce(x, op)  # HERE
""",
        "mismatch",
        [2],
    ),
    "a rank that makes no group with the others": (
        3,
        """
if rank == 2:
    time.sleep(999)  # HERE
group = dist.new_group()
dist.all_reduce(x, group=group)
""",
        "stuck",
        [2],
    ),
    "a thread that died while the main one waits for it": (
        3,
        """
done = threading.Event()
def load():
    raise OSError("no such sample")
    done.set()
if rank == 1:
    thread = threading.Thread(target=load)
    thread.start()
    done.wait()  # HERE
dist.all_reduce(x)
""",
        "stuck",
        [1],
    ),
    "native code that keeps the interpreter": (
        3,
        """
if rank == 1:
    all(itertools.repeat(True))  # HERE
dist.all_reduce(x)
""",
        "stuck",
        [1],
    ),
    "a crash in native code": (
        3,
        """
if rank == 2:
    ctypes.string_at(0)
dist.all_reduce(x)  # HERE
""",
        "dead",
        [2],
    ),
    "an object that cannot be pickled": (
        3,
        """
objects = [None] * size
dist.all_gather_object(objects, (lambda: 0) if rank == 1 else 1)  # HERE
""",
        "exception",
        [1],
    ),
    "a key that one rank never sets in the world's store": (
        3,
        """
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    store.get("never")  # HERE
dist.barrier()
""",
        "stuck",
        [0],
    ),
    "a receive from any rank that nobody sends": (
        2,
        """
if rank == 0:
    dist.recv(x)  # HERE
dist.barrier()
""",
        "stuck",
        [0],
    ),
}

NEED_ALL = (
    "the same exception on all ranks",
    "a rank that loops",
    "a rank that waits for a key",
    "one collective too many on one rank",
)
"""Faults of which less is said, or nothing, if one record is missing.

Either no other rank has waited for the guilty ranks, or none knows of all of them.
"""

LESS_CLEAR = (
    "native code that keeps the interpreter",
    "an object that cannot be pickled",
    "a receive from any rank that nobody sends",
)
"""Faults of which only the ranks are known if a certain record is missing."""

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
