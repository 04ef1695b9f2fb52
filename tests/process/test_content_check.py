"""Deaths and failures while the ranks compare contents."""

import pytest

from harness.pace import patient
from harness.ranks import Processes

CHECKED = """
    import os
    os.environ["ALLHANDS_CHECK"] = "content"
    dist.destroy_process_group()
    dist.init_process_group(
        store=FileStore(f"{folder}/checked", size), rank=rank, world_size=size,
        timeout=timedelta(seconds=60))
    from allhands.backends.content import Content
    plain = Content.hashes

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    x = np.ones(4)
    dist.all_reduce(x)
    began = time.monotonic()
"""


@pytest.mark.parametrize("hosts", [[0, 0, 0], [0, 1, 1]])
def test_who_dies_before_it_compares_is_named(hosts):
    source = (
        CHECKED
        + """
    if rank == 1:
        Content.hashes = die
    try:
        dist.all_reduce(x)
    except dist.RankFailedError as error:
        give((error.ranks, str(error), began, time.monotonic()))
    """
    )
    with Processes(3, source, hosts=hosts) as ranks:
        told = ranks.join(codes=[0, -9, 0])
    for named, text, began, end in (told[0], told[2]):
        assert named == [1]
        assert text.startswith("check of contents of all_reduce #2 on group '0' (")
        assert end - began < patient(10, began)


def test_who_was_interrupted_leaves_nobody_waiting():
    source = (
        CHECKED
        + """
    if rank == 1:
        def fail(self):
            raise MemoryError("no room for a hash")
        Content.hashes = fail
    try:
        dist.all_reduce(x)
    except (MemoryError, dist.DistBackendError) as error:
        give((type(error).__name__, str(error)))
    Content.hashes = plain
    """
    )
    with Processes(2, source) as ranks:
        other, own = ranks.join()
    assert own == ("MemoryError", "no room for a hash")
    assert other[0] == "DistBackendError"
    assert "no room for a hash" in other[1]


def test_what_is_started_and_never_waited_for_ends_with_the_program():
    source = (
        CHECKED
        + """
    works = [dist.all_reduce(x, async_op=True) for _ in range(20)]
    give(len(works))
    """
    )
    with Processes(2, source) as ranks:
        assert ranks.join() == [20, 20]
    assert ranks.stderr == ["", ""]
