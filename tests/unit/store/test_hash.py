"""What HashStore does besides the contract of all stores."""

import contextlib
import datetime
import os
import signal
import threading
import time

import pytest

from allhands import HashStore
from harness.pace import patient
from harness.ranks import LIMIT

LONG = datetime.timedelta(seconds=LIMIT)


def test_two_stores_share_nothing():
    one, other = HashStore(), HashStore()
    one.set("k", "v")
    assert not other.check(["k"])


def test_a_change_through_a_clone_ends_a_wait():
    store = HashStore()
    threading.Timer(0.02, store.clone().set, ("k", "v")).start()
    assert store.get("k") == b"v"


@pytest.mark.parametrize("method", ["get", "queue_pop"])
def test_ctrl_c_that_the_kernel_gives_to_another_thread_ends_a_wait(method):
    pressed = []

    def press():
        pressed.append(time.monotonic())
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    timer = threading.Timer(0.1, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        getattr(HashStore(), method)("never")
    assert time.monotonic() - pressed[0] < patient(0.5, pressed[0])
    timer.join()


def test_waiting_threads_are_woken_at_once():
    store, num_rounds = HashStore(), 100
    store.set_timeout(LONG)

    def answer():
        for turn in range(num_rounds):
            store.set(f"answer/{turn}", store.get(f"question/{turn}"))

    answering = threading.Thread(target=answer)
    answering.start()
    start = time.monotonic()
    for turn in range(num_rounds):
        store.set(f"question/{turn}", str(turn))
        assert store.get(f"answer/{turn}") == str(turn).encode()
    # To look at intervals of 0.1 s would take 10 s and more.
    assert time.monotonic() - start < patient(3, start)
    answering.join()


def test_a_child_forked_amid_the_calls_of_other_threads_goes_on():
    store, is_over = HashStore(), threading.Event()
    store.set_timeout(LONG)

    def work(name):
        while not is_over.is_set():
            store.set(name, "x" * 1000)
            store.add("n", 1)

    def wait():
        with contextlib.suppress(KeyboardInterrupt):
            store.get("the end")

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    threads.append(threading.Thread(target=wait))
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            check_in_child(lambda: store.get("late") == b"1", store)
    finally:
        is_over.set()
        store.set("the end", "")
        for thread in threads:
            thread.join()


def check_in_child(is_right, store):
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            signal.alarm(int(LIMIT))
            threading.Timer(0.01, store.set, ("late", "1")).start()
            status = 0 if is_right() else 2
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
