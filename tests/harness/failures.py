"""A rank's failure, as the launcher's tests need one."""

from allhands.elastic.failure import Failure


def traceback(error: str) -> str:
    """What Python prints of an exception whose last line is `error`."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/u/train.py", line 7, in step\n'
        "    go()\n"
        f"{error}\n"
    )


PLAIN = Failure(
    rank=2,
    local_rank=2,
    host="node1",
    pid=4711,
    exit_code=1,
    elapsed=3.21,
    stderr=traceback("ValueError: bad"),
)
