"""Who waits for whom, as two readings of the ranks' memory tell."""

from allhands.debug.top.looks import Look, is_communicating
from allhands.debug.top.memory import GroupView, Operation


def collective(number, op="all_reduce", *, root=-1, ended=False, is_async=False):
    return Operation(number, False, not ended, op, is_async, root, 100, int(ended))


def message(op, peer, number=1):
    return Operation(number, True, True, op, False, peer, 100, 0)


def group(rank, *operations, key=1, size=4, waiting=0):
    numbers = [each.number for each in operations if not each.is_message]
    return GroupView(
        key, 1, "g", rank, size, max(numbers, default=0), 0, 0, waiting, operations
    )


def world(*operations):
    """A group of all ranks, by what each of them has."""
    return {rank: [group(rank, *each)] for rank, each in enumerate(operations)}


def seen(views, halted=()):
    return Look.of(views, views, halted)


def test_ranks_wait_for_the_one_that_has_not_come():
    look = seen(world([collective(5)], [collective(4, ended=True)], [collective(5)]))
    assert look.waits == {0: {1}, 2: {1}}
    assert look.culprits == {1}


def test_nobody_waits_where_all_have_come():
    look = seen(world([collective(5)], [collective(5)]))
    assert look.waits == {}
    assert not look.culprits


def test_what_went_on_meanwhile_is_no_wait():
    first = world([collective(5)], [collective(4, ended=True)])
    came = world([collective(5)], [collective(5)])
    left = world([collective(5, ended=True)], [collective(4, ended=True)])
    assert Look.of(first, came).waits == {}
    assert Look.of(first, left).waits == {}


def test_who_waits_itself_is_not_to_blame():
    """Rank 0 waits for 1 in one group, and 1 for 2 in another."""
    views = {
        0: [group(0, collective(5))],
        1: [group(1, collective(4, ended=True)), group(0, collective(2), key=2)],
        2: [group(2, collective(5)), group(1, collective(1, ended=True), key=2)],
    }
    look = seen(views)
    assert look.waits == {0: {1}, 1: {2}, 2: {1}}
    assert look.culprits == {1, 2}  # a ring: all of it
    views[2][0] = group(2, collective(4, ended=True))
    look = seen(views)
    assert look.waits == {0: {1, 2}, 1: {2}}
    assert look.culprits == {2}


def test_a_rooted_collective_waits_for_whom_it_needs():
    late = [collective(1, "barrier", ended=True)]
    broadcast = [collective(2, "broadcast", root=1)]
    assert seen(world(late, broadcast, broadcast)).waits == {1: {0}}
    assert seen(world(broadcast, late, broadcast)).waits == {0: {1}, 2: {1}}
    reduce = [collective(2, "reduce", root=1)]
    assert seen(world(late, reduce, reduce)).waits == {1: {0}}
    scan = [collective(2, "scan")]
    assert seen(world(scan, late, scan)).waits == {2: {1}}


def test_a_receive_waits_for_its_source():
    alone = world([message("recv", 1)], [])
    assert seen(alone).waits == {0: {1}}
    under_way = world([message("recv", 1)], [message("send", 0)])
    assert seen(under_way).waits == {}
    assert seen(world([message("recv", -1)], [])).waits == {}
    assert seen(world([message("recv", 7)], [])).waits == {}  # on another host


def test_what_nobody_waits_for_is_no_wait():
    views = world([collective(5, is_async=True)], [collective(4, ended=True)])
    assert seen(views).waits == {}
    assert not is_communicating(views[0])
    views[0] = [views[0][0]._replace(num_waiting=1)]
    assert seen(views).waits == {0: {1}}
    assert is_communicating(views[0])


def test_a_halted_rank_is_waited_for_and_waits_for_nobody():
    stopped_inside = world([collective(5)], [collective(5)])
    look = seen(stopped_inside, {1})
    assert look.waits == {0: {1}}
    assert look.culprits == {1}
    stopped_waiting = world([collective(4, ended=True)], [collective(5)])
    assert seen(stopped_waiting, {1}).waits == {}
    in_message = world([message("recv", 1)], [message("send", 0)])
    assert seen(in_message, {1}).waits == {0: {1}}
