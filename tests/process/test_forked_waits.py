"""A signal's handler forks while an operation waits, and the child unwinds that."""

import pytest

from harness.ranks import Processes

FORKING = """
    forked = threading.Event()

    def fork(number, frame):
        child = os.fork()
        if child == 0:
            raise SystemExit
        assert os.waitpid(child, 0)[1] == 0
        forked.set()
        open(f"{folder}/forked", "w").close()

    signal.signal(signal.SIGALRM, fork)
    x, y = np.ones(4), np.zeros(1)
    dist.barrier()
    if rank == 0:
        alarm = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGALRM))
        try:
            alarm.start()
            WAIT
        except SystemExit:
            os._exit(0)
        assert forked.is_set()
        ended = threading.Event()
        work = dist.irecv(y, 1)
        work.get_future().add_done_callback(lambda _: ended.set())
        dist.send(x, 1)
        ended.wait()
        give(y.tolist())
    else:
        while not os.path.exists(f"{folder}/forked"):
            time.sleep(0.01)
        MEET
        dist.recv(x, 0)
        dist.send(y + 7, 0)
"""


@pytest.mark.parametrize(
    ("wait", "meet"),
    [
        ("dist.recv(x, 1)", "dist.send(x, 0)"),
        ("dist.all_reduce(x)", "dist.all_reduce(x)"),
    ],
)
def test_the_parent_goes_on(wait, meet):
    source = FORKING.replace("WAIT", wait).replace("MEET", meet)
    with Processes(2, source) as ranks:
        assert ranks.join()[0] == [7.0]
