"""Functions that run at the same time."""

import threading

from harness.ranks import LIMIT


def run_together(*works):
    """Run each of `works` in a thread; what one raises is raised here."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
