"""A signal's handler forks while an operation waits: the wait stays the parent's."""

import pytest

from harness.ranks import Processes

# The child leaves the wait by what the handler raises there, or else by an error of it.
FORKING = """
    forked, me = threading.Event(), os.getpid()

    def fork(number, frame):
        child = os.fork()
        if child == 0:
            LEAVE
        assert os.waitpid(child, 0)[1] == 0
        forked.set()
        open(f"{folder}/forked", "w").close()

    signal.signal(signal.SIGALRM, fork)
    x, y = np.full(COUNT, rank + 1.0), np.zeros(1)
    dist.barrier()
    if rank == 0:
        alarm = threading.Timer(0.2, os.kill, (me, signal.SIGALRM))
        try:
            alarm.start()
            WAIT
        except (SystemExit, dist.DistBackendError) as error:
            if os.getpid() == me:
                raise
            os._exit(0 if isinstance(error, LEFT) and "forked" in str(error) else 1)
        if os.getpid() != me:
            os._exit(2)
        assert forked.is_set()
        ended = threading.Event()
        work = dist.irecv(y, 1)
        work.get_future().add_done_callback(lambda _: ended.set())
        dist.send(x[:4], 1)
        ended.wait()
        give((y.tolist(), np.unique(x).tolist()))
    else:
        while not os.path.exists(f"{folder}/forked"):
            time.sleep(0.01)
        MEET
        dist.recv(x[:4], 0)
        dist.send(y + 7, 0)
"""


@pytest.mark.parametrize(
    ("count", "hosts"),
    [(4, None), (2_000_000, None), (2_000_000, ["one", "two"])],
    ids=["at once", "in pieces", "between hosts"],
)
@pytest.mark.parametrize(
    ("leave", "left"),
    [('raise SystemExit("forked")', "SystemExit"), ("return", "dist.DistBackendError")],
)
@pytest.mark.parametrize(
    ("wait", "meet", "result"),
    [
        ("dist.recv(x, 1)", "dist.send(x, 0)", 2),
        ("dist.all_reduce(x)", "dist.all_reduce(x)", 3),
        ("dist.broadcast(x, 1)", "dist.broadcast(x, 1)", 2),
    ],
)
def test_the_parent_goes_on(wait, meet, result, leave, left, count, hosts):
    changes = {"WAIT": wait, "MEET": meet, "LEAVE": leave, "LEFT": left}
    source = FORKING.replace("COUNT", str(count))
    for word, text in changes.items():
        source = source.replace(word, text)
    with Processes(2, source, hosts=hosts) as ranks:
        assert ranks.join()[0] == ([7.0], [result])
