"""What HashStore does besides the contract of all stores."""

import signal
import threading
import time

import pytest

from allhands import HashStore
from harness.pace import patient


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


def test_one_waiting_thread_is_woken_at_once():
    store = HashStore()
    seconds = []

    def wait():
        store.get("k")
        seconds.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not store._room.num_waiting:
        time.sleep(0.001)
    store.set("k", "v")
    start = time.monotonic()
    waiting.join()
    assert seconds[0] - start < patient(0.1, start)
